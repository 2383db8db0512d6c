#!/usr/bin/env bash
# What a wrapper costs: the bare command, flock, GNU sem and "sema run" in front
# of true, in turns, each N times (default 200). Prints the median of each in
# milliseconds, and how many times that of flock it is.
set -euo pipefail
runs=${1:-200}
sema=${SEMA:-bin/sema}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export SEMA_URL=file://$dir/sema

declare -A run=(
	[bare]="$(type -P true)"
	[flock]="flock $dir/lock $(type -P true)"
	[sema]="$sema run n -- $(type -P true)"
	[version]="$sema version"
)
order=(bare flock sema version)
if command -v sem >/dev/null && sem --version 2>/dev/null | grep -q GNU; then
	export PARALLEL_HOME=$dir/parallel
	mkdir -p "$PARALLEL_HOME" && touch "$PARALLEL_HOME/will-cite"
	run[gnu]="sem --fg --id start-time $(type -P true)"
	order+=(gnu)
fi

for ((i = 0; i < runs; i++)); do
	for who in "${order[@]}"; do
		[[ $who == gnu && $i -ge 20 ]] && continue # it takes long enough
		began=${EPOCHREALTIME/[.,]/}
		${run[$who]} >/dev/null
		echo $((${EPOCHREALTIME/[.,]/} - began)) >>"$dir/$who.times"
	done
done

median() { sort -n "$dir/$1.times" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
flock=$(median flock)
declare -A name=([bare]="$(type -P true)" [flock]="flock FILE true" [sema]="sema run NAME -- true" [version]="sema version" [gnu]="sem --fg true (GNU parallel)")
printf '%-28s %8s %8s\n' "" "ms" "x flock"
for who in "${order[@]}"; do
	awk -v n="${name[$who]}" -v m="$(median "$who")" -v f="$flock" 'BEGIN { printf "%-28s %8.2f %8.1f\n", n, m / 1000, m / f }'
done
