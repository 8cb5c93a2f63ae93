#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The recipes for other package managers.
#
#   packaging/check.sh read WORK       what can be said without building: ./dev test does that
#   packaging/check.sh build WORK      each recipe builds the library, and a program uses the result
#
# Meson, CPack and reuse are tried as they are. vcpkg and Conan are not in Debian: their recipes run with
# stand-ins for what the two give them (vcpkg/stand_in.cmake, conan/stand_in), which are as strict.
set -euo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$tree"
mode=${1:?read or build} work=${2:?a folder to work in}
mkdir -p "$work"
work=$(realpath "$work")
version=$(sed -n 's/^#define VERGE_VERSION_[A-Z]* //p' include/verge/version.h | paste -sd.)
export PYTHONDONTWRITEBYTECODE=1
# The same library is built again and again, in folders that are alike.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$work
fi

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# ---- Read ----------------------------------------------------------------------------------------

workflow_is_what_the_tree_needs() {
  packaging/workflow.py .github/workflows/ci.yml
}

conan_recipe_reads() {
  packaging/conan/stand_in/create.py packaging/conan "$work/conan_read" "$version" --read
}

vcpkg_port_reads() {
  local linkage wanted option
  for linkage in static dynamic; do
    cmake -DPORT_DIR="$tree/packaging/vcpkg/ports/verge" -DWORK="$work/vcpkg_read" -DREAD_ONLY=ON \
      -DVCPKG_LIBRARY_LINKAGE=$linkage -P packaging/vcpkg/stand_in.cmake >"$work/port.log" 2>&1 ||
      { cat "$work/port.log"; return 1; }
    wanted=$linkage
    [[ $linkage == dynamic ]] && wanted=shared
    grep -q -- "-DVERGE_LIBRARIES=$wanted" "$work/port.log" || fail "a $linkage triplet builds another library"
  done
  grep -q "vcpkg_from_git .*FETCH_REF;v$version;" "$work/port.log" || fail "the port fetches another version"
  for option in $(grep -oE 'VERGE_[A-Z_]+=' "$work/port.log" | sort -u); do
    grep -qE "(option|set)\(${option%=} " CMakeLists.txt || fail "the port sets ${option%=}, which there is not"
  done
  # A tag in place of a commit is what vcpkg refuses, and so does the stand-in.
  mkdir -p "$work/tag"
  cp packaging/vcpkg/ports/verge/* "$work/tag"
  sed -i 's/REF 0\{40\}/REF "v${VERSION}"/' "$work/tag/portfile.cmake"
  ! cmake -DPORT_DIR="$work/tag" -DWORK="$work/vcpkg_read" -DREAD_ONLY=ON -DVCPKG_LIBRARY_LINKAGE=static \
    -P packaging/vcpkg/stand_in.cmake >/dev/null 2>&1 || fail "the stand-in takes a tag as REF"
}

# Every recipe says where the project is found, and all say the same.
homepages_agree() {
  packaging/homepage.sh || fail "above; packaging/homepage.sh URL sets it everywhere"
}

# ---- Build ---------------------------------------------------------------------------------------

# What is committed, as a repository of its own with the tag of this version: as a release is.
make_a_release() {
  rm -rf "$work/release" "$work/recipes"
  mkdir "$work/release"
  git archive HEAD | tar --extract --directory "$work/release"
  git -C "$work/release" init --quiet
  git -C "$work/release" add --all
  git -C "$work/release" -c user.name=check -c user.email=check@localhost commit --quiet --message "A release"
  git -C "$work/release" -c user.name=check -c user.email=check@localhost tag "v$version"
  "$work/release/packaging/release.sh" "v$version" "$work/recipes"
}

vcpkg_port_builds() {
  local linkage
  for linkage in static dynamic; do
    rm -rf "$work/vcpkg_$linkage"
    mkdir "$work/vcpkg_$linkage"
    cmake -DPORT_DIR="$work/recipes/packaging/vcpkg/ports/verge" -DWORK="$work/vcpkg_$linkage" \
      -DGIT="$work/release" -DVCPKG_LIBRARY_LINKAGE=$linkage -P packaging/vcpkg/stand_in.cmake \
      >"$work/port.log" 2>&1 || { cat "$work/port.log"; return 1; }
    a_program_uses "$work/vcpkg_$linkage/packages" "$work/vcpkg_$linkage/consumer"
  done
}

# Found by CMake as the usage file says, and by pkg-config.
a_program_uses() {  # PREFIX WORK
  cmake -S tests/consumer -B "$2" -G Ninja -DCMAKE_PREFIX_PATH="$1" -DCONSUMER_LIBRARIES=verge >/dev/null
  cmake --build "$2" >/dev/null
  [[ $(LD_LIBRARY_PATH=$1/lib "$2/consumer_verge") == "$version" ]] || fail "the program does not run"
  local flags
  read -ra flags <<<"$(PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config --cflags --libs verge)"
  "${CXX:-g++}" -std=c++20 tests/consumer/consumer.cc "${flags[@]}" -o "$2/by_pkg_config"
  [[ $(LD_LIBRARY_PATH=$1/lib "$2/by_pkg_config") == "$version" ]] || fail "the program does not run"
}

conan_recipe_builds() {
  packaging/conan/stand_in/create.py packaging/conan "$work/conan_static" "$version"
  packaging/conan/stand_in/create.py packaging/conan "$work/conan_shared" "$version" --shared
}

meson_builds() {
  rm -rf "$work/meson"
  meson setup "$work/meson" --prefix "$work/meson_prefix" >"$work/meson.log" || { cat "$work/meson.log"; return 1; }
  meson compile -C "$work/meson"
  meson test -C "$work/meson"
  meson install -C "$work/meson" --quiet
  PKG_CONFIG_PATH=$(dirname "$(find "$work/meson_prefix" -name verge.pc)") \
    pkg-config --exact-version "$version" verge || fail "meson installs another version"
}

# As a project would: the wrap among its subprojects, which clones the release.
meson_wraps() {
  local example=$work/wrapped
  rm -rf "$example"
  mkdir -p "$example/packaging/meson"
  cp -r packaging/meson/example "$example/packaging/meson/"
  cp -r examples "$example/"
  sed "s|^url = .*|url = file://$work/release|" "$work/recipes/packaging/meson/verge.wrap" \
    >"$example/packaging/meson/example/subprojects/verge.wrap"
  meson setup "$example/build" "$example/packaging/meson/example" >"$work/wrap.log" ||
    { cat "$work/wrap.log"; return 1; }
  grep -q 'Subprojects' "$work/wrap.log" || fail "the wrap was not used"
  meson compile -C "$example/build"
  meson test -C "$example/build" || fail "the project that uses the wrap does not run"
}

cpack_packs() {
  local prefix=$work/cpack_prefix
  cmake --preset library -B "$work/cpack" >/dev/null
  cmake --build "$work/cpack"
  (cd "$work/cpack" && cpack --config CPackConfig.cmake >/dev/null)
  rm -rf "$prefix"
  mkdir "$prefix"
  tar --extract --strip-components 1 --directory "$prefix" --file "$work/cpack/verge-$version-"*.tar.gz
  [[ -e $prefix/lib/libverge.so.$version ]] || fail "cpack packs no library"
  a_program_uses "$prefix" "$work/cpack_consumer"
}

reuse_is_satisfied() {
  reuse lint --quiet || { reuse lint; fail "files without a licence, above"; }
}

readonly reading=(workflow_is_what_the_tree_needs conan_recipe_reads vcpkg_port_reads homepages_agree)
readonly building=(make_a_release vcpkg_port_builds conan_recipe_builds meson_builds meson_wraps cpack_packs
  reuse_is_satisfied)
case $mode in
  read) parts=("${reading[@]}") ;;
  build) parts=("${reading[@]}" "${building[@]}") ;;
  *) parts=("$mode") ;;
esac
for part in "${parts[@]}"; do
  echo "== ${part//_/ }"
  "$part"
done
for tool in vcpkg conan; do
  command -v "$tool" >/dev/null || echo "packaging: $tool is not installed; a stand-in has run its recipe"
done
