#!/bin/sh
# Runs the driver against a redis-server of its own, and checks its answers and
# its errors. Needs Java 17, Maven, redis-server and python3. About a minute.
set -eu
cd "$(dirname "$0")"
. ../driver-test.sh

for contestant in redisson-semaphore redisson-permit; do
	works $contestant 1 1 0
	works $contestant 1 64 1000
	works $contestant 8 64 0
	works $contestant 64 512 1000
done
for contestant in redisson-lock redisson-fair-lock; do
	works $contestant 1 64 0
	works $contestant 1 512 1000
done
refuses redisson-permit
fails "a lock for two" redisson-lock 2 1 0 </dev/null
echo ok
