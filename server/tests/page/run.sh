#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The page in a browser, against a verge serve of its own.
# usage: run.sh CHROMIUM VERGE [PICTURES]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$here/package.json" "$here/page.js" "$here/../../../tests/support/page_tests.js" "$scratch"
(cd "$scratch" && npm install --no-audit --no-fund --loglevel=error >/dev/null)
node "$scratch/page.js" "$1" "$(realpath "$2")" "$scratch/data" "${@:3}"
