#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a release gives to package managers, out of its tag: the port for vcpkg, with the commit that
# it fetches, and the wrap for Meson.
# usage: packaging/release.sh TAG FOLDER
set -euo pipefail
tag=${1:?usage: packaging/release.sh TAG FOLDER} folder=${2:?usage: packaging/release.sh TAG FOLDER}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  echo "release: $*" >&2
  exit 1
}

commit=$(git rev-parse --verify --quiet "$tag^{commit}") || die "there is no tag $tag"
version=$(git show "$commit:packaging/vcpkg/ports/verge/vcpkg.json" | sed -n 's/^  "version": "\(.*\)",$/\1/p')
[[ $tag == "v$version" ]] || die "the tag is $tag, and the version in it is $version"

mkdir -p "$folder"
git archive "$commit" packaging/vcpkg/ports packaging/meson/verge.wrap | tar --extract --directory "$folder"
sed -i "s/REF 0\{40\}$/REF $commit/" "$folder/packaging/vcpkg/ports/verge/portfile.cmake"
grep -q "REF $commit\$" "$folder/packaging/vcpkg/ports/verge/portfile.cmake" || die "the port has no place for the commit"
echo "release: $folder/packaging has the port for vcpkg and the wrap for Meson, of $tag, which is $commit"
