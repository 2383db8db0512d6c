#!/bin/sh
# Holds the API's description against tools of others. Needs go and python3 with
# venv; fetches what requirements.txt says with pip into a cache, once. Further
# arguments go to go test, such as -run Schemathesis. Where Python is missing it
# says so and fails; with SEMA_INTEROP_OPTIONAL=1 it says so and succeeds.
set -eu
cd "$(dirname "$0")"

if ! command -v python3 >/dev/null 2>&1; then
	echo "interop/openapi: not run, no python3 on this machine" >&2
	[ "${SEMA_INTEROP_OPTIONAL:-}" = 1 ] && exit 0
	exit 1
fi
bin=$(../venv.sh requirements.txt)
PATH=$bin:$PATH exec go test -tags interop -count=1 -timeout 9m -v "$@" .
