#!/bin/sh
# Installs what the tests need beside Go, with apt where that is there and allowed. With arguments, it installs the programs
# that they name, from packages of the same names. Without arguments, or after "all", it installs what make check needs:
#   redis-server, PostgreSQL and PgBouncer   the engines
#   tmux, curl, parallel, flock              tests of the command
#   Chromium                                 the dashboard's tests
#   Python with aiohttp, Node.js, npm        the clients
#   a C compiler                             the race detector
#   locales                                  the judge of the Lua
set -eu

missing=
if [ $# -eq 0 ] || [ "$1" = all ]; then
	[ $# -eq 0 ] || shift
	command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
	command -v tmux >/dev/null 2>&1 || missing="$missing tmux"
	command -v curl >/dev/null 2>&1 || missing="$missing curl"
	command -v python3 >/dev/null 2>&1 || missing="$missing python3"
	python3 -c "import aiohttp" 2>/dev/null || /usr/bin/python3 -c "import aiohttp" 2>/dev/null || missing="$missing python3-aiohttp"
	command -v node >/dev/null 2>&1 || missing="$missing nodejs"
	command -v npm >/dev/null 2>&1 || missing="$missing npm"
	command -v sem >/dev/null 2>&1 || missing="$missing parallel"
	command -v flock >/dev/null 2>&1 || missing="$missing util-linux"
	# Debian has PostgreSQL's programs outside of the path.
	command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
	[ -e /usr/share/i18n/locales/en_US ] || missing="$missing locales"
	PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null 2>&1 || missing="$missing pgbouncer"
	command -v "${CC:-gcc}" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
	[ -n "${SEMA_CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
		command -v google-chrome >/dev/null 2>&1 || missing="$missing chromium"
fi
for program in "$@"; do
	command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -z "$missing" ] && exit 0

as=
[ "$(id -u)" = 0 ] || as="sudo -n"
# shellcheck disable=SC2086 # both are lists of words
if command -v apt-get >/dev/null 2>&1 && { [ -z "$as" ] || $as true 2>/dev/null; }; then
	echo "installing$missing"
	if $as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as apt-get install -y -qq $missing >/dev/null; then
		exit 0
	fi
fi
echo "The tests need$missing: install them, e.g. with: sudo apt-get install$missing" >&2
exit 1
