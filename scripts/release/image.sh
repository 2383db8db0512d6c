#!/bin/sh
# Builds the image without a daemon, for each processor that has a program: $1 is a directory with linux/ARCH/sema, $2
# the version. The further arguments say where it goes: oci-archive:FILE, docker://REGISTRY/NAME:TAG.
# $SOURCE_DATE_EPOCH, if set, is the time of its files.
set -eu
command -v buildah >/dev/null 2>&1 || { echo "The image needs buildah: install it, e.g. with: sudo apt-get install buildah" >&2; exit 1; }
from=$1 version=$2
shift 2
context=$(mktemp -d)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
storage="--root $context/.storage --runroot $context/.run"
trap 'rm -rf "$context"' EXIT

cp -R "$from/linux" "$context/"
for roots in ${SSL_CERT_FILE:-} /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	[ ! -f "$roots" ] || { cp "$roots" "$context/ca-certificates.crt" && break; }
done
platforms=$(cd "$context" && echo linux/*)
# shellcheck disable=SC2086 # lists of words
buildah $storage build --quiet --platform "$(echo $platforms | tr ' ' ,)" --manifest sema --timestamp "${SOURCE_DATE_EPOCH:-0}" \
	--label org.opencontainers.image.title=sema --label "org.opencontainers.image.version=$version" \
	--label org.opencontainers.image.licenses=Apache-2.0 -f deploy/Containerfile "$context"
for to in "$@"; do
	# shellcheck disable=SC2086
	buildah $storage manifest push --quiet --all sema "$to"
done
