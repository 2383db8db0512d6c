#!/usr/bin/env bash
# The tests that need a Redis, on each of several servers, which fetch-server.sh fetches:
#
#   scripts/servers.sh redis-8.0 valkey-8.1
#
# A server that cannot be fetched is a failure; with SEMA_SERVERS_OPTIONAL=1 it is said, and that is all.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
for name in "$@"; do
	if ! server=$(scripts/fetch-server.sh "$name"); then
		[ "${SEMA_SERVERS_OPTIONAL:-}" = 1 ] || status=1
		continue
	fi
	echo "$name: $("$server" --version)"
	SEMA_REDIS_SERVER=$server CGO_ENABLED=1 bin/gotestsum --format pkgname -- -race -count=1 -timeout 15m \
		./internal/fixture/redistest ./engines/redisengine ./redisson ./classic || status=1
	SEMA_REDIS_SERVER=$server CGO_ENABLED=1 go -C cmd/sema test -race -count=1 -timeout 15m ./internal/cli || status=1
done
exit $status
