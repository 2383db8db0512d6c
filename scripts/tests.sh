#!/usr/bin/env bash
# Prints go test -json of several modules, for gotestsum: each module and package is tried, though another has failed.
#
#   scripts/tests.sh 'MODULES' 'MODULES THAT WANT THE RACE DETECTOR' FLAGS…
set -uo pipefail
modules=$1 race=$2 status=0
shift 2
run() {
	case " $race " in
	*" $1 "*) CGO_ENABLED=1 go -C "$1" test -json -race "${@:2}" || status=1 ;;
	*) go -C "$1" test -json "${@:2}" || status=1 ;;
	esac
}
for m in $modules; do
	if [ "$m" = lab ]; then
		# A herd brings the load under which nobody may fail. Beside other packages the load would be any.
		run lab "$@" $(go -C lab list ./... | grep -v /herds)
		run lab "$@" ./herds
	else
		run "$m" "$@" ./...
	fi
done
exit $status
