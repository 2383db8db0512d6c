#!/usr/bin/env bash
# A thousand processes `sema run` wait on one name. Measures their cost while they
# wait, and checks that all run, in order of arrival. Then the same with some of
# them killed.
#
#   scripts/thousand-waiters.sh [WAITERS [KILLED [SECONDS]]]
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-1000} killed=${2:-100} idle=${3:-60}
go -C cmd/sema build -o ../../bin/sema .
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
export SEMA_URL="file://$dir/store"

bin/sema run queue -- cat "$dir/gate" &   # holds until the gate opens
mkfifo "$dir/gate"
until bin/sema show queue >/dev/null 2>&1; do sleep 0.05; done
pids=()
for i in $(seq "$n"); do
	bin/sema run queue -- sh -c 'echo "$0" >> "$1"' "$i" "$dir/order" &
	pids+=($!)
	until [ "$(bin/sema ls --json | grep -o '"waiting": *[0-9]*' | grep -o '[0-9]*$')" -ge "$i" ]; do sleep 0.01; done
done

ticks() { cat /proc/[0-9]*/stat 2>/dev/null | awk '$2 == "(sema)" { sum += $14 + $15 } END { print sum + 0 }'; }
before=$(ticks)
sleep "$idle"
after=$(ticks)
awk -v n="$n" -v s="$idle" -v t="$((after - before))" -v hz="$(getconf CLK_TCK)" \
	'BEGIN { printf "%d waiters, idle for %d s: %.2f s of processor time, %.2f %% of a core\n", n, s, t / hz, 100 * t / hz / s }'

gone=()
for i in $(shuf -i 1-"$n" -n "$killed"); do
	kill -9 "${pids[$((i - 1))]}"
	gone+=("$i")
done
began=$(date +%s.%N)
: > "$dir/gate"
failed=0
for i in $(seq "$n"); do
	wait "${pids[$((i - 1))]}" || failed=$((failed + 1))
done
awk -v b="$began" -v e="$(date +%s.%N)" -v n="$((n - killed))" 'BEGIN { printf "the rest ran in %.1f s, %.1f ms each\n", e - b, 1000 * (e - b) / n }'
ran=$(wc -l < "$dir/order")
echo "$killed killed, $ran ran, $((failed - killed)) failed"
if sort -nc "$dir/order" 2>/dev/null; then echo "in order"; else echo "OUT OF ORDER"; exit 1; fi
[ "$ran" -eq "$((n - killed))" ] && [ "$failed" -eq "$killed" ]
