#!/bin/sh
# The same line in the crontab of three hosts; the job must not overlap itself:
#
#	0 3 * * *  sema run --no-wait nightly -- report
#
# Needs nothing but the program; SEMA_URL=redis://… runs the same across hosts.
set -eu
sema=${SEMA:-bin/sema}
name=nightly-$$
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkfifo "$dir/begun" "$dir/end"

"$sema" run --no-wait "$name" -- sh -c '
	echo "host 1: report begins"
	echo >"$1/begun"
	read -r line <"$1/end"
	echo "host 1: report ends"' report "$dir" &
read -r line <"$dir/begun"

for host in 2 3; do
	if "$sema" run --no-wait "$name" -- echo "host $host: report" 2>"$dir/said"; then
		echo "host $host: ran beside the other"
	else
		echo "host $host: exit status $?, $(sed "s/-$$//g" "$dir/said")"
	fi
done
echo >"$dir/end"
wait
