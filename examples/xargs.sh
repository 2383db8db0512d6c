#!/bin/sh
# Two xargs with eight processes each, as in two shells or on two hosts: three
# jobs at once in all. Needs nothing but the program; SEMA_URL=redis://… runs the
# same across hosts.
set -eu
sema=${SEMA:-bin/sema}
name=xargs-$$
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# What is limited: curl -O "$2", say. This one notes when it begins and ends.
job='echo begin >>"$1/log"; sleep 0.1; echo end >>"$1/log"'

for shell in 1 2; do
	seq 12 | xargs -P 8 -I % "$sema" run -n 3 "$name" -- sh -c "$job" job "$dir" % &
done
wait
awk '
	/begin/ { jobs++; if (++now > 3) exit 1 }
	/end/   { now-- }
	END     { print jobs " jobs, " (now ? now " of them still running" : "never more than 3 at once") }
' "$dir/log"
