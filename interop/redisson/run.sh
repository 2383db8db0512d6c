#!/bin/sh
# Builds the Java program with Maven. Runs the tests of package redisson against
# the Redisson of pom.xml, and against the oldest compatible one. Prints a table
# of the tested features for each.
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

# build leaves the driver in directory $1; the rest is for Maven.
build() {
	dir=$1
	shift
	jar=$dir/redisson-driver-1.jar
	if [ ! -f "$jar" ] || [ -n "$(find pom.xml src -newer "$jar")" ]; then
		# Kept quiet: Maven colours even nothing.
		if ! said=$(mvn -q -B -DskipTests "-Ddriver.directory=$dir" "$@" clean package 2>&1); then
			echo "$said" >&2
			exit 1
		fi
	fi
}

# All tests with the Redisson that pom.xml names.
build target
go test -count=1 -timeout 5m -tags interop

# Those that need no newer method with the oldest we are compatible with.
echo
build target-oldest -Dredisson.version=3.22.0 -Dslf4j.version=1.7.36
SEMA_REDISSON_TARGET=target-oldest go test -count=1 -timeout 5m -tags interop \
	-run 'TestNames|TestWorkers|TestWakingEachOther$|TestCluster/cluster$'
