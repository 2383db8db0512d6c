#!/bin/sh
# Starts the driver (see driver.js), its packages installed first when missing.
# Standard output is the driver's alone.
set -eu
cd "$(dirname "$0")"

fail() {
	printf '{"error":"%s"}\n' "$1"
	exit 1
}

# A half-finished installation has no such file: npm writes it last.
mark=node_modules/.package-lock.json

install() {
	[ -f "$mark" ] && [ ! package-lock.json -nt "$mark" ] && return
	npm ci --silent --no-audit --no-fund >&2 && touch "$mark"
}

command -v node >/dev/null 2>&1 || fail "no node on this machine"
# Drivers are started several at a time; only one of them may install.
(
	if command -v flock >/dev/null 2>&1; then flock 9; fi
	install
) 9>.lock || fail "npm ci failed"
exec node driver.js "$@"
