#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A receiver that verifies every push with the npm package standardwebhooks, unmodified.
# usage: run.sh VERGE
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../support/served.sh"
start_server "$1" --http 127.0.0.1:0 --push-private
cp "$here/package.json" "$here/receiver.js" "$scratch"
(cd "$scratch" && npm install --no-audit --no-fund --loglevel=error >/dev/null)
node "$scratch/receiver.js" "$address"
