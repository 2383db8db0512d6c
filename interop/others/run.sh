#!/bin/sh
# Runs the tests beside npm's redis-semaphore. Needs Go, redis-server, node and
# npm. Where node is missing it says so and fails; with SEMA_INTEROP_OPTIONAL=1 it
# says so and succeeds.
set -eu
cd "$(dirname "$0")"

for tool in node npm; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		echo "interop/others: not run, no $tool on this machine" >&2
		[ "${SEMA_INTEROP_OPTIONAL:-}" = 1 ] && exit 0
		exit 1
	fi
done
(cd node && npm ci --silent --no-audit --no-fund)
go test -count=1 -timeout 5m -tags interop -run TestNode .
