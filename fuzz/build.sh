#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the targets as OSS-Fuzz asks: with its CXX, CXXFLAGS and LIB_FUZZING_ENGINE, into OUT, each
# with its corpus. Without them, for this machine: ./dev check fuzz. (-fsanitize=function does not work
# with coroutines in clang 14.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CXX=${CXX:-clang++-14}
export CXXFLAGS=${CXXFLAGS:--O1 -g1 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize=vptr,function -fno-sanitize-recover=all}
engine=${LIB_FUZZING_ENGINE:--fsanitize=fuzzer,address,undefined}
build=${WORK:-build/fuzz}
out=${OUT:-build/fuzz/out}

cmake -G Ninja -B "$build" -DCMAKE_BUILD_TYPE=None -DVERGE_FUZZ="$engine" \
  -DVERGE_BUILD_TESTS=OFF -DVERGE_BUILD_BENCH=OFF -DVERGE_BUILD_EXAMPLES=ON \
  -DVERGE_BUILD_TOOLS=OFF -DVERGE_BUILD_C=OFF -DVERGE_INSTALL=OFF -DVERGE_BUILD_SERVER=OFF
targets=()
for source in fuzz/*_fuzzer.cc; do
  targets+=("$(basename "$source" .cc)")
done
cmake --build "$build" --target "${targets[@]}"
mkdir -p "$out"
for target in "${targets[@]}"; do
  cp "$build/fuzz/$target" "$out/"
  if command -v zip >/dev/null; then
    zip --quiet --junk-paths --recurse-paths "$out/${target}_seed_corpus.zip" "fuzz/corpus/${target%_fuzzer}"
  fi
done
