#!/usr/bin/env bash
# Tries what make release-dry left in dist: what belongs to a release is there, each package is installed in a directory of
# its own and serves there, and so does the image. Needs root, redis-server, curl, dpkg, rpm, man and buildah.
set -euo pipefail
cd "$(dirname "$0")/../../dist"
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
fail() { echo "release: $*" >&2; exit 1; }

version=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' metadata.json) commit=$(git -c safe.directory='*' rev-parse HEAD)
arch=$(go env GOARCH) client=$(go -C .. list -m -f '{{.Version}}' github.com/redis/go-redis/v9)

port=$((20000 + RANDOM % 10000))
redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$dir" >/dev/null &

# says COMMAND…: the program is of this release and commit.
says() {
	local said
	said=$("$@" version --json | tr -d ' \n')
	[[ $said == *"\"version\":\"v$version\""* && $said == *"\"commit\":\"$commit\""* ]] || fail "$* says $said, not v$version of $commit"
}

# serves ROOT USER PROGRAM: sema serve works over a Redis, grants a permit, and ends well.
serves() {
	chroot --userspec="$2" "$1" "$3" serve --listen 127.0.0.1:0 2>"$dir/log" &
	local serve=$! url=
	for _ in $(seq 100); do
		url=$(sed -n 's/.*msg=serving url=\([^ ]*\).*/\1/p' "$dir/log")
		[ -z "$url" ] || break
		sleep 0.1
	done
	curl -sSf -X PUT -H 'Content-Type: application/json' -d '{"limit": 1}' "$url/v1/semaphores/release-$RANDOM/permits/one" >/dev/null ||
		fail "$1: no permit: $(cat "$dir/log")"
	kill "$serve"
	wait "$serve" || fail "$1: sema serve ended: $(cat "$dir/log")"
}
export SEMA_URL=redis://127.0.0.1:$port

# installed ROOT: what a package brings is there, and works.
installed() {
	says chroot "$1" /usr/bin/sema
	cp -rn /usr/lib/systemd/system "$1/usr/lib/systemd" # what the unit comes after
	systemd-analyze verify --man=no --root="$1" sema.service
	(source "$1/usr/share/bash-completion/completions/sema" && complete -p sema >/dev/null)
	man -P cat -l "$1/usr/share/man/man1/sema-run.1" | grep -q sema-run || fail "no manual page of sema run"
	[ "$(stat -c %a "$1/etc/sema/serve.env")" = 600 ] || fail "serve.env may have a password in it, and others may read it"
	serves "$1" 65532:65532 /usr/bin/sema
}

sha256sum -c --quiet checksums.txt
[ "$(wc -l <checksums.txt)" = 14 ] || fail "want sums of 5 archives, 4 packages and 5 SBOMs: $(cat checksums.txt)"

for system in linux_amd64 linux_arm64 darwin_arm64 freebsd_amd64 windows_amd64; do
	name=sema_${version}_$system
	mkdir "$dir/$system"
	if [ -e "$name.zip" ]; then python3 -m zipfile -e "$name.zip" "$dir/$system"; else tar -xzf "$name.tar.gz" -C "$dir/$system"; fi
	for file in LICENSE README.md CHANGELOG.md sema.1 sema-run.1 sema.bash sema.zsh sema.fish sema.powershell; do
		[ -n "$(find "$dir/$system" -name "$file")" ] || fail "$name has no $file"
	done
	tr -d ' \n' <"$name.cdx.json" | grep -q "go-redis/v9\",\"version\":\"$client\"" || fail "the SBOM of $name lacks go-redis $client"
done
says "$(find "$dir/linux_$arch" -type f -name sema)"

root=$dir/deb
mkdir -p "$root"/var/lib/dpkg/{info,updates}
: >"$root/var/lib/dpkg/status"
dpkg="dpkg --root=$root --force-depends --log=/dev/null"
$dpkg -i "sema_${version}_linux_$arch.deb"
installed "$root"
echo SEMA_URL=redis://10.0.0.5 >"$root/etc/sema/serve.env"
$dpkg -r sema
[ ! -e "$root/usr/bin/sema" ] || fail "the program is there after its package was removed"
grep -q 10.0.0.5 "$root/etc/sema/serve.env" || fail "what an operator wrote was removed"

root=$dir/rpm
mkdir "$root"
rpm --root="$root" --dbpath=/var/lib/rpm --initdb
rpm --root="$root" --dbpath=/var/lib/rpm -i --nodeps "sema_${version}_linux_$arch.rpm"
installed "$root"

buildah="buildah --root=$dir/images --runroot=$dir/run --storage-driver=vfs"
for to in arm64 amd64; do
	container=$($buildah from --quiet --arch "$to" "oci-archive:$PWD/sema_${version}_image.tar")
	config=$($buildah inspect --format '{{.OCIv1.Architecture}} {{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' "$container")
	[[ $config =~ ^$to\ ([^ ]+)\ \[([^ ]+)\]\ \[serve ]] || fail "the image for $to is $config"
	[ "$to" = "$arch" ] || continue
	root=$($buildah mount "$container")
	[ -s "$root/etc/ssl/certs/ca-certificates.crt" ] || fail "the image has no roots of certificates"
	says chroot --userspec="${BASH_REMATCH[1]}" "$root" "${BASH_REMATCH[2]}"
	serves "$root" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
	$buildah umount "$container" >/dev/null
done
echo "the release is good: v$version"
