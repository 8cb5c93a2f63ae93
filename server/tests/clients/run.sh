#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Clients of beanstalkd, as they come from npm and Debian, against a verge serve of their own.
# usage: run.sh VERGE
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../support/served.sh"
start_server "$1"

cp "$here/package.json" "$here/clients.js" "$scratch"
(cd "$scratch" && npm install --no-audit --no-fund --loglevel=error >/dev/null)
failed=0
node "$scratch/clients.js" "$port" || failed=1
timeout 60 ruby "$here/beaneater.rb" "$port" || failed=1
timeout 60 php "$here/pheanstalk.php" "$port" || failed=1
exit $failed
