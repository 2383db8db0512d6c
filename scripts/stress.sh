#!/usr/bin/env bash
# What takes minutes, and a machine that does nothing else. Without names, all of it.
#
#   scripts/stress.sh [storm] [kills] [bounds] [herds]
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
try() { "$@" || status=1; }
for part in ${*:-storm kills bounds herds}; do
	case $part in
	storm) # the cancellation storm, 100,000 rounds on each engine
		SEMA_STORM=500 try go test -count=1 -timeout 60m -v -run 'TestPromises$/8_NothingLeaks/a_wait_cancelled' ./engines/memengine ./engines/fileengine ./engines/redisengine
		;;
	kills) # as many processes as users have: idle, handing over, killed at random; and 1,000 kill -9 of sema run
		for n in 1 40 300 500 1000; do
			SEMA_STRESS=$n try go test -count=1 -timeout 20m -v -run TestProcessesInOrder ./engines/fileengine
		done
		SEMA_STRESS_NAMESPACES=1000 try go test -count=1 -timeout 20m -v -run TestNamespacesShareALimit ./engines/fileengine
		SEMA_STRESS_KILLS=1000 try go test -count=1 -timeout 20m -v -run TestStormOfKills ./engines/fileengine
		try go test -count=200 -timeout 20m -run TestKilled ./engines/fileengine
		SEMA_KILLS=1000 try go -C cmd/sema test -count=1 -timeout 30m -v -run 'KillMinusNineAtRandomMoments' ./internal/cli
		;;
	bounds) # the longest step with 100,000 that wait and 100,000 that hold, on Redis
		SEMA_BOUNDS=100000 try go test -count=1 -timeout 20m -v -run TestStepsAreBounded ./engines/redisengine
		;;
	herds) # 1,000 processes that come at one moment on files, 500 on Redis, 300 on PostgreSQL
		SEMA_HERD=1000 try go -C lab test -count=1 -timeout 20m -v -run TestAHerdIsServed/files ./herds
		SEMA_HERD=500 try go -C lab test -count=1 -timeout 20m -v -run TestAHerdIsServed/redis ./herds
		SEMA_HERD=300 try go -C lab test -count=1 -timeout 20m -v -run TestAHerdIsServed/postgres ./herds
		;;
	*)
		echo "stress: there is no $part" >&2
		status=2
		;;
	esac
done
exit $status
