#!/bin/sh
# Prints the directory of programs of a Python environment with the packages of a
# requirements file. pip makes the environment in a cache, once for each set of
# packages.
#
#     venv.sh requirements.txt
set -eu

fail() {
	echo "$0: $1" >&2
	exit 1
}

sum=$(cksum "$1" | cut -d' ' -f1)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/sema-interop/python-$sum
if [ ! -e "$venv/ready" ]; then # only a finished one has the mark
	rm -rf "$venv"
	mkdir -p "$(dirname "$venv")"
	python3 -m venv "$venv" || fail "python3 cannot make a venv; try: apt-get install python3-venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$1" >&2 ||
		fail "pip cannot fetch $(tr '\n' ' ' <"$1"); try: check the network"
	touch "$venv/ready"
fi
echo "$venv/bin"
