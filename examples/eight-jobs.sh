#!/bin/sh
# Eight jobs, three at a time, first come, first served: what sema is for.
# Needs nothing but the program; SEMA_URL=redis://… runs the same across hosts.
set -eu
sema=${SEMA:-bin/sema}
name=demo-$$

for i in 1 2 3 4 5 6 7 8; do
	"$sema" run -n 3 --label "job $i" "$name" -- sh -c '
		echo "$(date +%T)  job $1 starts"
		sleep $((1 + $1 % 2))
		echo "$(date +%T)  job $1 is done"' job "$i" &
	sleep 0.1
done
"$sema" show "$name"
wait
"$sema" show "$name"
