#!/usr/bin/env bash
# From the end of one job to the start of the next, under flock and under sema
# run, with so many waiting. Prints medians in milliseconds.
#
#   scripts/hand-off.sh [WAITERS…]
set -euo pipefail
cd "$(dirname "$0")/.."
go -C cmd/sema build -o ../../bin/sema .
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
export SEMA_URL="file://$dir/store"
job='echo "$EPOCHREALTIME" >> "$0"; echo "$EPOCHREALTIME" >> "$0"'

# chain FILE WRAPPER…: N jobs, all waiting before the first ends.
chain() {
	local n=$1 book=$2; shift 2
	: > "$book"
	mkfifo "$dir/gate"
	"$@" cat "$dir/gate" &
	sleep 0.3
	for _ in $(seq "$n"); do "$@" bash -c "$job" "$book" & done
	sleep "$(awk -v n="$n" 'BEGIN { print 1 + n / 100 }')"
	: > "$dir/gate"
	wait
	rm "$dir/gate"
	awk 'NR % 2 == 1 && NR > 1 { print 1000 * ($1 - last) } { last = $1 }' "$book"
}

printf '%-10s %8s %8s\n' waiters flock sema
for n in "${@:-1 20 500}"; do
	for n in $n; do
		for _ in 1 2 3; do
			[ "$n" = 1 ] && jobs=2 || jobs=$n
			for _ in $(seq $((n == 1 ? 20 : 1))); do
				chain "$jobs" "$dir/f" flock "$dir/lock" >> "$dir/flock.$n"
				chain "$jobs" "$dir/s" bin/sema run chain -- >> "$dir/sema.$n"
			done
		done
		median() { sort -n "$1" | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }'; }
		printf '%-10s %8s %8s\n' "$n" "$(median "$dir/flock.$n")" "$(median "$dir/sema.$n")"
	done
done
