#!/bin/sh
# Fetches a server that tests can run beside the machine's own, and prints the
# path of its program: scripts/fetch-server.sh valkey-8.0. The Debian packages
# are unpacked below ~/.cache/sema-servers; nothing is installed. The server
# runs through the dynamic loader and the libraries of its own release, so one
# machine runs what several releases ship. Delete the directory to fetch anew.
set -eu

case "${1:-}" in
redis-7.0) package=redis-server program=redis-server suites=bookworm ;;
redis-8.0) package=redis-server program=redis-server suites=trixie ;;
valkey-8.0) package=valkey-server/bookworm-backports program=valkey-server suites="bookworm bookworm-backports" ;;
valkey-8.1) package=valkey-server program=valkey-server suites=trixie ;;
*)
	echo "usage: fetch-server.sh redis-7.0 | redis-8.0 | valkey-8.0 | valkey-8.1" >&2
	exit 2
	;;
esac

# give_up ends with a status that says: not to be had on this machine.
give_up() {
	echo "$1" >&2
	exit 3
}

name=$1
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/sema-servers
final=$cache/$name
if [ -x "$final/server" ]; then
	echo "$final/server"
	exit 0
fi
command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || give_up "this machine has no apt"

mkdir -p "$cache"
work=$(mktemp -d "$cache/.$name.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/none" "$work/root"
: >"$work/status"

# The machine's proxies count, its sources and its installed packages do not:
# with no package installed, apt fetches the libraries too.
cat >"$work/apt.conf" <<CONF
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "$work/none";
Dir::Etc::preferences "$work/none/preferences";
Dir::Etc::preferencesparts "$work/none";
Dir::Log "$work";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF

options="target=Packages arch=$(dpkg --print-architecture)"
for keyring in /usr/share/keyrings/debian-archive-keyring.pgp /usr/share/keyrings/debian-archive-keyring.gpg; do
	if [ -e "$keyring" ]; then
		options="$options signed-by=$keyring"
		break
	fi
done

# A mirror of Debian is one of the machine's own that has the suites, signed by
# Debian. Repositories of others fail that.
mirrors=$(apt-get indextargets --no-release-info --format '$(COMPONENT) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
	awk '$1 == "main" && $2 !~ /-/ && !seen[$3]++ { print $3 }')
[ -n "$mirrors" ] || give_up "apt knows no mirror of Debian"
found=
for mirror in $mirrors; do
	for suite in $suites; do echo "deb [$options] $mirror $suite main"; done >"$work/sources.list"
	if apt-get -c "$work/apt.conf" -qq update >"$work/log" 2>&1; then
		found=yes
		break
	fi
done
[ -n "$found" ] || give_up "no mirror has ${suites}: $(grep '^E:' "$work/log" | head -1)"
apt-get -c "$work/apt.conf" -qq -y --download-only install "$package" >"$work/log" 2>&1 ||
	give_up "$(grep '^E:' "$work/log" | head -1)"
for deb in "$work"/archives/*.deb; do dpkg-deb -x "$deb" "$work/root"; done

loader=$(cd "$work/root" && find lib usr/lib -path '*-linux-gnu*/ld-linux*' 2>/dev/null | head -1)
[ -n "$loader" ] || give_up "its packages have no dynamic loader"
triplet=$(basename "$(dirname "$loader")")

# start says how the program is started from root directory $1.
start() {
	echo "'$1/$loader' --library-path '$1/lib/$triplet:$1/usr/lib/$triplet' '$1/usr/bin/$program'"
}
eval "$(start "$work/root") --version" >"$work/log" 2>&1 || give_up "it does not run here: $(head -1 "$work/log")"
mkdir "$work/done"
mv "$work/root" "$work/done/root"
printf '#!/bin/sh\nexec %s "$@"\n' "$(start "$final/root")" >"$work/done/server"
chmod +x "$work/done/server"
# Another process may have put the same files there meanwhile.
mv -T "$work/done" "$final" 2>/dev/null || [ -x "$final/server" ]
echo "$final/server"
