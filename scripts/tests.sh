#!/usr/bin/env bash
# Prints go test -json of several modules, for gotestsum: each module and package is tried, though another has failed.
#
#   scripts/tests.sh 'MODULES' 'MODULES THAT WANT THE RACE DETECTOR' FLAGS…
set -uo pipefail
modules=$1 race=$2 status=0
shift 2
for m in $modules; do
	case " $race " in
	*" $m "*) CGO_ENABLED=1 go -C "$m" test -json -race "$@" || status=1 ;;
	*) go -C "$m" test -json "$@" || status=1 ;;
	esac
done
exit $status
