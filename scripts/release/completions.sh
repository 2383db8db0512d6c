#!/bin/sh
# Writes what shells complete by into the directory $1.
set -eu
mkdir -p "$1"
for shell in bash zsh fish powershell; do
	go -C cmd/sema run . completion $shell >"$1/sema.$shell"
done
