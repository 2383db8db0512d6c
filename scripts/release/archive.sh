#!/bin/sh
# Keeps the source of a release until the next one: what the load of lab/versions is built from, and nothing
# else. archive.sh v0.1.0 packs the working tree as that release. The same tree makes the same bytes.
set -eu
cd "$(dirname "$0")/../.."
release=${1:?usage: archive.sh v0.1.0}
here=$(pwd)
to=lab/versions/last/$release.tar.gz
mkdir -p lab/versions/last
rm -f lab/versions/last/*.tar.gz
{
	printf '%s\n' go.mod go.sum LICENSE
	go list -deps -f '{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .IgnoredGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}' ./internal/fixture/versions/worker |
		sed -n "s#^$here/##p" | grep -v '_test\.go$'
} | LC_ALL=C sort -u | tar --create --files-from=- --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 --format=ustar | gzip -9n >"$to"
echo "$to: $(tar -tzf "$to" | wc -l) files, $(wc -c <"$to") bytes"
