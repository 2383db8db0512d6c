#!/bin/bash
# The demo: six jobs share two permits, and one of the two that work is killed: docs/demo.svg is a recording of it.
# It needs sema on the path, and nothing else: semaphores are files, in a directory that is removed at the end.
set -eufm

dir=$(mktemp -d)
trap '{ kill $(jobs -p); wait; } 2>/dev/null || true; rm -rf "$dir"' EXIT
export SEMA_URL=file://$dir
cd "$dir"

# type shows a line word by word, runs it in this shell, and waits for so many seconds. The
# shell reports a killed job during that wait; the report is dropped, for it names this script.
type() {
	printf '\033[1;32m$\033[0m'
	for word in $1; do
		printf ' %s' "$word"
		sleep 0.04
	done
	echo
	eval "$1"
	{ sleep "$2"; } 2>/dev/null
}

type 'for n in 1 2 3 4 5 6; do sema run -n 2 --label job-$n report -- sleep 60 & sleep 0.1; done' 0.3
type 'sema show report # two work, four wait' 4
type 'kill -9 %1' 0.5
type 'sema show report # its permit is back: job-3 was next' 4
type 'sema why report # what a newcomer would wait for' 4
