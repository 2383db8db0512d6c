#!/bin/sh
# Makes a release in dist/: goreleaser's part, which .goreleaser.yaml describes, and the image. Its arguments are
# goreleaser's. With $IMAGE, such as registry.example.org/you/sema, the image is pushed to there.
set -eu
cd "$(dirname "$0")/../.."
GORELEASER="go run github.com/goreleaser/goreleaser/v2@v2.16.0"

# The modules below contrib have tags at the same commit; the release is of the root's.
tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || echo v0.0.0)
export GORELEASER_CURRENT_TAG="$tag"
if [ -z "$(git remote)" ]; then # goreleaser says no commit if it finds none
	export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://example.org/nobody/sema
fi
notes=$(mktemp)
trap 'rm -f "$notes"' EXIT
awk -v section="## ${tag#v}" 'index($0, "## ") == 1 { on = $0 == section || index($0, section " ") == 1; next } on' CHANGELOG.md >"$notes"
$GORELEASER release --clean --release-notes "$notes" "$@"

programs=$(mktemp -d)
trap 'rm -rf "$notes" "$programs"' EXIT
for built in dist/sema_linux_*/sema; do
	arch=${built#dist/sema_linux_}
	arch=${arch%%_*}
	mkdir -p "$programs/linux/$arch"
	cp "$built" "$programs/linux/$arch/sema"
done
version=v$(sed -n 's/.*"version":"\([^"]*\)".*/\1/p' dist/metadata.json)
export SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
to=oci-archive:dist/sema_${version#v}_image.tar:localhost/sema:$version
case " $* " in
*" --snapshot "*) ;;
*) [ -z "${IMAGE:-}" ] || to="$to docker://$IMAGE:$version" ;;
esac
# shellcheck disable=SC2086 # a list of words
scripts/release/image.sh "$programs" "$version" $to
