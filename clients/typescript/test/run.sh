#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The TypeScript client: its types from the contract, compiled, and its tests against a real server.
# usage: run.sh VERGE
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
verge=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/clients" "$scratch/server/web"
cp -r "$here" "$scratch/clients/typescript"
cp "$here/../../server/web/openapi.json" "$scratch/server/web"
cd "$scratch/clients/typescript"
npm install --no-audit --no-fund --loglevel=error >/dev/null
npm run --silent build
VERGE=$verge node --test test/
