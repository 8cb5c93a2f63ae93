#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where the project is found. The one place is HOMEPAGE_URL in CMakeLists.txt; package managers want it
# in files of their own, which this writes anew. A test compares them.
# usage: packaging/homepage.sh [URL]     without a URL: the files that have another one than CMakeLists.txt
set -euo pipefail
cd "${VERGE_TREE:-$(dirname "${BASH_SOURCE[0]}")/..}"

readonly files=(debian/control debian/copyright debian/upstream/metadata packaging/conan/conanfile.py
  packaging/meson/verge.wrap packaging/vcpkg/ports/verge/vcpkg.json packaging/vcpkg/ports/verge/portfile.cmake)
old=$(sed -n 's/^  HOMEPAGE_URL "\(.*\)"$/\1/p' CMakeLists.txt)
[[ -n $old ]] || { echo "homepage: CMakeLists.txt has no HOMEPAGE_URL" >&2; exit 1; }

if (($#)); then
  sed -i "s|$old|${1%/}|" CMakeLists.txt "${files[@]}"
  echo "homepage: ${1%/} in CMakeLists.txt and ${files[*]}"
  exit
fi
status=0
for file in "${files[@]}"; do
  if ! grep -q "$old" "$file" || grep -oE 'https?://[^ ">]+' "$file" |
    grep -vE "^$old(\.git)?$|debian.org|apache.org" | grep .; then
    echo "homepage: $file has another address than $old" >&2
    status=1
  fi
done
exit $status
