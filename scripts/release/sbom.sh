#!/bin/sh
# Writes to $2 which modules the program $1 is made of, in CycloneDX's form. Syft reads what Go has put into the
# program, so this says what is there, and not what go.mod would allow.
set -eu
here=$(dirname "$0")
syft=$("$here/../../interop/venv.sh" "$here/syft.txt")/syft
SYFT_CHECK_FOR_APP_UPDATE=false exec "$syft" scan --quiet "file:$1" -o "cyclonedx-json=$2"
