#!/usr/bin/env bash
# Gives the modules a path that others can get: module paths, imports, requirements, replacements, and the documents.
#
#   scripts/home.sh example.org/you/sema [v0.1.0]
#
# The version is the one that the modules below contrib require of the root, and of each other. Nothing is committed.
# An earlier path can be changed again. CONTRIBUTING.md says which tags follow. With TAG=1 the modules that others get lose
# their lines replace, which go install refuses: such a commit is tagged, and no work goes on from it.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:?which path? Try: make home MODULE=example.org/you/sema} version=${2:-v0.1.0}
[[ $to =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+$ ]] || { echo "nobody could get a module from $to" >&2; exit 1; }

from=$(awk '$1 == "module" {print $2}' go.mod)
was=${from//./\\.}
below=$(git ls-files | sed -n 's|^\([a-z][^/]*\)/.*|\1|p' | sort -u | paste -sd'|')
all=$(git ls-files)
text=$(grep -lIF "$from" -- $all | grep -v 'go\.sum$')

# The paths of packages and modules below the root, wherever they stand; then the root's in go.mod and among imports.
sed -i -E "s#(^|[^[:alnum:]_./-])$was/($below)(_test)?\b#\1$to/\2\3#g" $text
sed -i -E "s#^(module|replace|require)? ?(\s*)$was( |\$)#\1 \2$to\3#; s#^ (\s)#\1#; s#($to[^ ]*) v[0-9][^ ]*#\1 $version#" $(grep 'go\.mod$' <<<"$all")
sed -i -E "s#^(\s*(import )?([a-z]+ )?)\"$was\"\$#\1\"$to\"#" $(grep -E '\.(go|md)$' <<<"$text")
gofmt -w $(grep '\.go$' <<<"$text")

if [ "${TAG:-}" ]; then
	for m in cmd/sema engines/pgengine contrib/*; do
		for r in $(awk -v to="$to" '$1 == "replace" && $2 != "(" {print $2} $1 != "replace" && index($1, to) == 1 && $2 == "=>" {print $1}' $m/go.mod); do
			go mod edit -dropreplace "$r" $m/go.mod
		done
	done
fi

# README.md says how to get it.
awk -v to="$to" '/^<!-- home:/ { print; print "With the program above as `main.go`, in a directory of its own:\n\n```sh\ngo mod init example.org/hello\n" \
	"go mod tidy\nREDIS=127.0.0.1:6379 go run .\n```\n\nThe program sema: `go install " to "/cmd/sema@latest`."; skip = 1 }
	/^<!-- \/home/ { skip = 0 } !skip' README.md >README.new
mv README.new README.md
