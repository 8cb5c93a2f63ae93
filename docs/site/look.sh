#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The site in a browser: see look.js.
# usage: look.sh CHROMIUM HTML PICTURES [PAGE,..]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$here/package.json" "$here/look.js" "$scratch"
(cd "$scratch" && npm install --no-audit --no-fund --loglevel=error >/dev/null)
mkdir -p "$3"
node "$scratch/look.js" "$1" "$(realpath "$2")" "$(realpath "$3")" "${@:4}"
