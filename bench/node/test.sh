#!/bin/sh
# Runs the driver against a redis-server of its own, and checks its answers and
# its errors. Needs node, redis-server and python3. Some seconds.
set -eu
cd "$(dirname "$0")"
. ../driver-test.sh

contestant=node-redis-semaphore
works $contestant 1 1 0
works $contestant 1 64 1000
works $contestant 8 64 0
works $contestant 64 512 1000
refuses $contestant
echo ok
