#!/bin/bash
# What the picture at the top of README.md shows, typed at a terminal. It needs sema
# on the path, and nothing else: semaphores are files, in a directory of its own.
set -eum

dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
export SEMA_URL=file://$dir
cd "$dir"

# type shows a line as somebody types it, and then runs it in this shell.
type() {
	printf '\033[1;32m$\033[0m '
	for ((i = 0; i < ${#1}; i++)); do
		printf '%s' "${1:i:1}"
		sleep 0.03
	done
	echo
	eval "$1"
	sleep "${2:-1}"
}

type 'for n in 1 2 3 4 5 6; do sema run -n 2 --label job-$n report -- sleep 9 & sleep 0.1; done'
type 'sema show report    # two work, four wait' 2
type 'kill -9 %1' 0.5
type 'sema show report    # its permit is back: job-3 was next' 3
type 'sema why report     # what a newcomer would wait for' 2
type 'wait; sema show report' 3
