#!/bin/sh
# Records play.sh on a terminal with asciinema, and draws docs/demo.svg of it with
# svg-term. Needs Python with venv and Node.js; both tools come from pip and npm.
set -eu
cd "$(dirname "$0")/../.."

bin=$(interop/venv.sh scripts/demo/requirements.txt)
cast=$(mktemp)
trap 'rm -f "$cast"' EXIT
PATH=$PWD/bin:$PATH "$bin/asciinema" rec --quiet --overwrite --cols 100 --rows 24 --idle-time-limit 3 \
	--command scripts/demo/play.sh "$cast"
npx --yes --package svg-term-cli@2.1.1 svg-term --in "$cast" --out docs/demo.svg --window --no-cursor
