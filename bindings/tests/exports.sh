#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The names that libverge-c.so exports are those of exports.txt, each under the library's symbol
# version and declared in verge_c.h; and every function that the header declares is among them.
#
#   exports.sh LIBRARY FOLDER VERSION
set -euo pipefail

readonly library=$1 folder=$2 version=VERGE_$3

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

exported=$(nm --dynamic --defined-only --with-symbol-versions "$library" | awk '{ print $3 }' |
  grep -v "^$version\(@@.*\)\?$" | sort)
expected=$(sed "s/\$/@@$version/" "$folder/exports.txt" | sort)
diff <(echo "$expected") <(echo "$exported") ||
  fail "libverge-c.so exports other names (>) than exports.txt lists (<)"

declared=$(grep -oE '\bverge_[a-z_]+\(' "$folder/verge_c.h" | tr -d '(' | sort -u)
while read -r name; do
  grep -qxF "$name" <<<"$declared" || fail "verge_c.h does not declare $name"
done <"$folder/exports.txt"
# Declarations, not mentions in comments: at the beginning of a line, after a type.
while read -r name; do
  grep -qxF "$name" "$folder/exports.txt" || fail "verge_c.h declares $name, which is not exported"
done < <(sed -nE 's/^(const char|int|void|int64_t|size_t)\*? \*?(verge_[a-z_]+)\(.*/\2/p' "$folder/verge_c.h")
echo "$(wc -l <"$folder/exports.txt") names, all under $version"
