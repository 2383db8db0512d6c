#!/bin/sh
# Runs the book's semaphores from Python and ours from Go against the same
# Redis. Needs go, redis-server and python3 with venv; fetches the redis-py of
# requirements.txt with pip into a cache, once. Further arguments go to go test.
# Where Python is missing it says so and fails; with SEMA_INTEROP_OPTIONAL=1 it
# says so and succeeds.
set -eu

fail() {
	echo "interop/classic: $1" >&2
	exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
if ! command -v python3 >/dev/null 2>&1; then
	echo "interop/classic: not run, no python3 on this machine" >&2
	[ "${SEMA_INTEROP_OPTIONAL:-}" = 1 ] && exit 0
	exit 1
fi
for tool in go redis-server; do
	command -v "$tool" >/dev/null || fail "there is no $tool on this machine; try: install it"
done

bin=$("$here/../venv.sh" "$here/requirements.txt")
cd "$here"
SEMA_INTEROP=1 SEMA_INTEROP_PYTHON="$bin/python" exec go test -tags interop -count=1 -v "$@" .
