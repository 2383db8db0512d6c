#!/bin/sh
# Builds the Java program with Maven (the version of Redisson is in pom.xml) and
# runs package redisson against it, then prints a table of what was exercised.
#
# Needs Java 17, Maven, Go and redis-server. Where Java or Maven are missing it
# says so and fails; with SEMA_INTEROP_OPTIONAL=1 it says so and succeeds.
set -eu
cd "$(dirname "$0")"

for tool in java mvn; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		echo "interop/redisson: not run, no $tool on this machine" >&2
		[ "${SEMA_INTEROP_OPTIONAL:-}" = 1 ] && exit 0
		exit 1
	fi
done

jar=target/redisson-driver-1.jar
if [ ! -f "$jar" ] || [ -n "$(find pom.xml src -newer "$jar")" ]; then
	mvn -q -B -DskipTests clean package
fi
exec go test -count=1 -timeout 5m -tags interop
