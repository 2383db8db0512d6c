#!/bin/sh
# Starts the driver (see Driver.java), built first when missing or outdated.
# Standard output is the driver's alone.
set -eu
cd "$(dirname "$0")"

fail() {
	printf '{"error":"%s"}\n' "$1"
	exit 1
}

# Made last, so that a half-finished build does not count.
mark=target/built

build() {
	[ -f "$mark" ] && [ -z "$(find pom.xml src -newer "$mark")" ] && return
	command -v mvn >/dev/null 2>&1 || return 1
	rm -rf target
	# Kept quiet: Maven colours even nothing.
	said=$(mvn -q -B -DskipTests package 2>&1) || {
		echo "$said" >&2
		return 1
	}
	touch "$mark"
}

command -v java >/dev/null 2>&1 || fail "no java on this machine"
# Drivers are started several at a time; only one of them may build.
(
	if command -v flock >/dev/null 2>&1; then flock 9; fi
	build
) 9>.lock || fail "mvn package failed"
exec java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp 'target/bench-driver.jar:target/lib/*' bench.Driver "$@"
