#!/usr/bin/env bash
# Counts the lines of Go and Lua, and other things that only grow, each beside its budget. It informs, and never fails.
# Core is what a permit passes through; product is what users get; proof is what else has no _test.go in its name.
cd "$(dirname "$0")/.." || exit

code=$(git ls-files '*.go' '*.lua')
plain=$(grep -v '_test\.go$' <<<"$code")
proof='^(lab|bench|examples|interop|enginetest|internal/fixture)/'
lines() { grep -E "$1" | tr '\n' '\0' | xargs -0 -r cat | wc -l; }
row() { printf '%-28s %8s %8s\n' "$@"; }
row '' now budget
row core "$(lines '^[^/]*\.go$|^engine/|^engines/(memengine|fileengine|redisengine)/|^internal/(ledger|client|loop|pack|protocol)/' <<<"$plain")" 16300
row product "$(grep -vE "$proof" <<<"$plain" | lines .)" 44000
row proof "$(lines "$proof" <<<"$plain")" ''
row 'all without tests' "$(lines . <<<"$plain")" 65000
row tests "$(lines '_test\.go$' <<<"$code")" 54000
row 'tracked files' "$(git ls-files | wc -l)" 1000
row go.mod "$(git ls-files '*go.mod' | wc -l)" 14
row 'make targets' "$(grep -oE '^[a-z][a-z-]*:([^=]|$)' Makefile | cut -d: -f1 | sort -u | wc -l)" 30
row 'files in the root' "$(git ls-files | grep -vc /)" 40
