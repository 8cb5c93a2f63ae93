#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the library as its users get it: installed into a scratch prefix, found from there.
#
#   check.sh CASE, with in the environment
#     BUILD    the build tree to install from
#     SOURCE   the project's root
#     CXX      the compiler
#     VERSION  the version that the library must say it is
#
# The cases other than `install` need `install` to have run (a fixture in tests/CMakeLists.txt).
set -euo pipefail

: "${BUILD:?}" "${SOURCE:?}" "${CXX:?}" "${VERSION:?}"
readonly work=$BUILD/consumer
readonly prefix=$work/prefix
readonly source_file=$SOURCE/tests/consumer/consumer.cc

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The program runs, says the right version, and needs the shared library or does not.
runs() {  # PROGRAM static|shared
  local said needs=static
  said=$("$1") || fail "$1 does not run"
  [[ $said == "$VERSION" ]] || fail "$1 says version '$said', not '$VERSION'"
  readelf --dynamic "$1" | grep -q 'NEEDED.*libverge\.so' && needs=shared
  [[ $needs == "$2" ]] || fail "$1 is linked $needs, not $2"
  echo "$1: $said, $needs"
}

use_pkg_config() {
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name verge.pc)")
  export PKG_CONFIG_PATH
  [[ $(pkg-config --modversion verge) == "$VERSION" ]] || fail "verge.pc has another version"
}

case ${1:?which case} in
  install)
    rm -rf "$work"
    cmake --install "$BUILD" --prefix "$prefix"
    ;;

  find_package)
    cmake -S "$SOURCE/tests/consumer" -B "$work/find_package" -G Ninja \
      -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$CXX"
    cmake --build "$work/find_package"
    runs "$work/find_package/consumer_verge" static
    runs "$work/find_package/consumer_static" static
    runs "$work/find_package/consumer_shared" shared
    runs "$work/find_package/consumer_loops" static
    [[ $("$work/find_package/consumer_c") == "$VERSION" ]] || fail "consumer_c does not run"
    ;;

  pkg_config_shared)
    use_pkg_config
    read -ra flags <<<"$(pkg-config --cflags --libs verge)"
    "$CXX" -std=c++20 "$source_file" "${flags[@]}" -o "$work/pkg_config_shared"
    LD_LIBRARY_PATH=$(pkg-config --variable=libdir verge) runs "$work/pkg_config_shared" shared
    ;;

  pkg_config_static)
    use_pkg_config
    read -ra flags <<<"$(pkg-config --static --cflags --libs verge)"
    "$CXX" -std=c++20 "$source_file" -static "${flags[@]}" -o "$work/pkg_config_static"
    runs "$work/pkg_config_static" static
    ;;

  pkg_config_c)
    use_pkg_config
    read -ra flags <<<"$(pkg-config --cflags --libs verge-c)"
    "${CC:-cc}" -std=c99 -pedantic -Werror "$SOURCE/tests/consumer/consumer.c" "${flags[@]}" \
      -Wl,-rpath-link,"$(pkg-config --variable=libdir verge-c)" -o "$work/pkg_config_c"
    said=$(LD_LIBRARY_PATH=$(pkg-config --variable=libdir verge-c) "$work/pkg_config_c") ||
      fail "the program in C does not run"
    [[ $said == "$VERSION" ]] || fail "the program in C says version '$said', not '$VERSION'"
    ;;

  # With BUILD_SHARED_LIBS verge::verge is the shared library: in the tree, and in the package, of which
  # only the configuration differs.
  build_shared_libs)
    cmake -S "$SOURCE" -B "$work/shared" -G Ninja -DBUILD_SHARED_LIBS=ON -DVERGE_BUILD_TESTS=OFF \
      -DVERGE_BUILD_BENCH=OFF -DVERGE_BUILD_EXAMPLES=OFF -DVERGE_BUILD_TOOLS=OFF \
      -DCMAKE_CXX_COMPILER="$CXX"
    cp -r "$prefix" "$work/shared_prefix"
    cp "$work/shared/verge-config.cmake" "$(dirname "$(find "$work/shared_prefix" -name verge-config.cmake)")"
    cmake -S "$SOURCE/tests/consumer" -B "$work/find_shared" -G Ninja \
      -DCMAKE_PREFIX_PATH="$work/shared_prefix" -DCMAKE_CXX_COMPILER="$CXX"
    cmake --build "$work/find_shared" --target consumer_verge
    runs "$work/find_shared/consumer_verge" shared
    # Nothing is built here: which library does a target of the tree link?
    cmake -S "$SOURCE/tests/consumer" -B "$work/subdirectory" -G Ninja -DVERGE_SUBDIRECTORY="$SOURCE" \
      -DBUILD_SHARED_LIBS=ON -DCMAKE_CXX_COMPILER="$CXX"
    [[ $(<"$work/subdirectory/verge_is") == libverge.so* ]] ||
      fail "with BUILD_SHARED_LIBS verge::verge is $(<"$work/subdirectory/verge_is")"
    ;;

  # Package managers ask for one library: the other is neither built nor installed. Nothing is built
  # here, either.
  one_library)
    for kind in static shared; do
      cmake -S "$SOURCE" -B "$work/only_$kind" -G Ninja -DVERGE_LIBRARIES=$kind -DVERGE_BUILD_TESTS=OFF \
        -DVERGE_BUILD_BENCH=OFF -DVERGE_BUILD_EXAMPLES=OFF -DVERGE_BUILD_TOOLS=OFF -DVERGE_BUILD_SERVER=OFF \
        -DVERGE_BUILD_C=OFF -DCMAKE_CXX_COMPILER="$CXX"
      files=$(grep -ohE 'libverge\.(a|so)"' "$work/only_$kind/cmake_install.cmake" | sort -u | tr -d '\n')
      built=$(ninja -C "$work/only_$kind" -t commands all | grep -oE ' src/libverge\.(a|so)' | sort -u | tr -d ' \n')
      expected=libverge.a
      [[ $kind == shared ]] && expected=libverge.so
      [[ $files == "$expected\"" ]] || fail "VERGE_LIBRARIES=$kind installs $files"
      [[ $built == "src/$expected" ]] || fail "VERGE_LIBRARIES=$kind builds $built"
      cmake -S "$SOURCE/tests/consumer" -B "$work/subdirectory_$kind" -G Ninja -DVERGE_SUBDIRECTORY="$SOURCE" \
        -DVERGE_LIBRARIES=$kind -DCMAKE_CXX_COMPILER="$CXX"
      [[ $(<"$work/subdirectory_$kind/verge_is") == "$expected"* ]] ||
        fail "with VERGE_LIBRARIES=$kind verge::verge is $(<"$work/subdirectory_$kind/verge_is")"
    done
    if cmake -S "$SOURCE" -B "$work/only_c" -G Ninja -DVERGE_LIBRARIES=static -DVERGE_BUILD_C=ON \
      -DVERGE_BUILD_TESTS=OFF -DVERGE_BUILD_BENCH=OFF -DVERGE_BUILD_EXAMPLES=OFF -DVERGE_BUILD_TOOLS=OFF \
      -DVERGE_BUILD_SERVER=OFF >/dev/null 2>&1; then
      fail "libverge-c, which links the shared library, is built without it"
    fi
    ;;

  # The shared library shows what the public headers declare and nothing else, under the version of its
  # soname. Every part of an exported name is looked up in the headers.
  exports)
    library=$(find "$prefix" -name libverge.so)
    declare -A declared
    while read -r word; do
      declared[$word]=1
    done < <(grep -rhoE '[A-Za-z_][A-Za-z0-9_]*' "$prefix/include/verge" | sort -u)
    # Without its version, arguments, and what the linker adds. A function template's name begins with
    # what it returns.
    plain='s/@@.*//; :a; s/<[^<>]*>//; ta; s/\(.*//; s/^((vtable|typeinfo( name)?|VTT) for|guard variable for|TLS (init|wrapper) function for|(non-)?virtual thunk to) //; s/\[abi:[^]]*\]//g; s/.* //'
    names=$(nm --dynamic --demangle --defined-only "$library" | cut -d' ' -f3- | grep -v "^VERGE_${VERSION%.*}")
    exported=0
    while read -r name <&3 && read -r short <&4; do
      [[ $name == *"@@VERGE_${VERSION%.*}" ]] || fail "libverge.so exports $name without its version"
      [[ $short == verge::* ]] || fail "libverge.so exports $name, which is not in namespace verge"
      for part in ${short//[^A-Za-z0-9_]/ }; do
        [[ $part == operator ]] && break
        [[ -v declared[$part] ]] ||
          fail "libverge.so exports $name, but no public header declares '$part': it should be hidden"
      done
      exported=$((exported + 1))
    done 3<<<"$names" 4< <(sed -E "$plain" <<<"$names")
    ((exported > 0)) || fail "libverge.so exports nothing"
    [[ $(readelf --dynamic "$library") == *"soname: [libverge.so.${VERSION%.*}]"* ]] ||
      fail "libverge.so has another soname than libverge.so.${VERSION%.*}"
    # Its threads, and its handlers for fork, exit and thread end, would continue to run.
    [[ $(readelf --dynamic "$library") == *NODELETE* ]] || fail "libverge.so can be unloaded"
    echo "$exported names of verge are exported, each from a public header"
    ;;

  *) fail "no such case: $1" ;;
esac
