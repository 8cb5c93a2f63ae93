#!/bin/bash
# The recipes for other package managers. Meson, CPack and reuse are tried; vcpkg and Conan are not in
# Debian, so their recipes are read: the port by CMake, with functions of vcpkg's names that print what
# they are given, the recipe by Python.
# usage: packaging/check.sh WORK VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$1 version=$2
mkdir -p "$work"
work=$(realpath "$work")

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

meson_builds() {
  rm -rf "$work/meson" "$work/uses_verge"
  meson setup "$work/meson" --prefix "$work/meson_prefix" >"$work/meson.log" || { cat "$work/meson.log"; return 1; }
  meson compile -C "$work/meson"
  meson test -C "$work/meson"
  meson install -C "$work/meson" --quiet
  PKG_CONFIG_PATH=$(dirname "$(find "$work/meson_prefix" -name verge.pc)") \
    pkg-config --exact-version "$version" verge || fail "meson installs another version"
}

# As a project would: the wrap among its subprojects, here with the tree in place of a clone.
meson_wraps() {
  local example=$work/wrapped
  rm -rf "$example"
  mkdir -p "$example/packaging/meson"
  cp -r packaging/meson/example "$example/packaging/meson/"
  cp -r examples "$example/"
  cp packaging/meson/verge.wrap "$example/packaging/meson/example/subprojects/"
  mkdir "$example/packaging/meson/example/subprojects/verge"
  cp -r meson.build include src "$example/packaging/meson/example/subprojects/verge/"
  meson setup "$example/build" "$example/packaging/meson/example" >"$work/wrap.log" ||
    { cat "$work/wrap.log"; return 1; }
  # Configured: it found the dependency through the wrap. The library was built above.
  meson introspect "$example/build" --targets | grep -q '"name": "first"' ||
    fail "the project that uses the wrap has no program"
  grep -q 'Subprojects' "$work/wrap.log" || fail "the wrap was not used"
}

cpack_packs() {
  cmake --preset library -B "$work/cpack" >/dev/null
  cmake --build "$work/cpack"
  (cd "$work/cpack" && cpack --config CPackConfig.cmake >/dev/null)
  tar --list --file "$work/cpack/verge-$version-"*.tar.gz >"$work/cpack.list"
  grep -q '/include/verge/verge.h$' "$work/cpack.list" || fail "cpack packs no headers"
  grep -q "/libverge.so.$version\$" "$work/cpack.list" || fail "cpack packs no library"
}

vcpkg_port_reads() {
  cat >"$work/port.cmake" <<'TEXT'
foreach(name from_git cmake_configure cmake_install cmake_config_fixup fixup_pkgconfig install_copyright)
  cmake_language(EVAL CODE "function(vcpkg_${name})\n message(\"vcpkg_${name} \${ARGN}\")\nendfunction()")
endforeach()
set(PORT verge)
file(READ ${FOLDER}/vcpkg.json manifest)
string(JSON VERSION GET "${manifest}" version)
include(${FOLDER}/portfile.cmake)
TEXT
  # What it installs goes to a folder of its own, not to that of a real port.
  cmake -DFOLDER="$PWD/packaging/vcpkg/ports/verge" -DCURRENT_PACKAGES_DIR="$work/vcpkg" \
    -P "$work/port.cmake" >"$work/port.log" 2>&1 || { cat "$work/port.log"; return 1; }
  grep -q "vcpkg_from_git .*v$version" "$work/port.log" || fail "the port fetches another version"
  local option
  for option in $(grep -oE 'VERGE_[A-Z_]+' "$work/port.log" | sort -u); do
    grep -q "option($option " CMakeLists.txt || fail "the port sets $option, which there is not"
  done
}

conan_recipe_reads() {
  python3 - "$version" <<'TEXT'
import ast, sys
for name in ("conanfile.py", "test_package/conanfile.py"):
    tree = ast.parse(open(f"packaging/conan/{name}").read())
    kind = next(n for n in tree.body if isinstance(n, ast.ClassDef))
    methods = {n.name for n in kind.body if isinstance(n, ast.FunctionDef)}
    needed = {"conanfile.py": {"package", "package_info", "build", "export_sources"}}.get(name, {"test", "build"})
    assert needed <= methods, f"{name} lacks {needed - methods}"
    values = {n.targets[0].id: ast.literal_eval(n.value) for n in kind.body if isinstance(n, ast.Assign)}
    assert name != "conanfile.py" or values["version"] == sys.argv[1], f"{name} has another version"
TEXT
}

workflow_runs_ci() {
  python3 - <<'TEXT'
import yaml
jobs = yaml.safe_load(open(".github/workflows/ci.yml"))["jobs"]
rows = jobs["test"]["strategy"]["matrix"]["include"]
assert any(s.get("run") == ".ci/run" for s in jobs["test"]["steps"]), "it does not run .ci/run"
images = {r["image"].split(":")[0] for r in rows}
assert images == {"debian", "ubuntu", "fedora", "alpine"}, images
compilers = {r["compiler"] for r in rows}
wanted = {f"g++-{n}" for n in (12, 13, 14)} | {f"clang++-{n}" for n in range(14, 20)}
assert wanted <= compilers, wanted - compilers
assert {r["arch"] for r in rows} == {"x86-64", "arm64"}
TEXT
}

for part in workflow_runs_ci conan_recipe_reads vcpkg_port_reads meson_builds meson_wraps cpack_packs; do
  echo "== ${part//_/ }"
  "$part"
done
if command -v reuse >/dev/null; then
  echo "== reuse"
  reuse lint --quiet || { reuse lint; fail "files without a licence, above"; }
fi
for tool in vcpkg conan; do
  command -v "$tool" >/dev/null || echo "packaging: $tool is not installed, so its recipe was only read"
done
