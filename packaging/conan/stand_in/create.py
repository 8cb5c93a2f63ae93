#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`conan create`, by the stand-in: the package is made, and test_package is built with it and run.

usage: create.py FOLDER WORK VERSION [--shared] [--read]

Fails if the package has another library than the one asked for, or lacks a header or the licence. With --read
nothing is built: only what can be said without that is checked.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import sys
import types

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMakeDeps, CMakeToolchain, cmake_layout


def recipe_in(file):
    spec = importlib.util.spec_from_file_location(file.parent.name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(k for k in vars(module).values()
                if isinstance(k, type) and issubclass(k, ConanFile) and k is not ConanFile)


def settings(**other):
    compiler = types.SimpleNamespace(cppstd=other.pop("cppstd", "20"))
    return {"os": "Linux", "arch": "x86_64", "compiler": compiler, "build_type": "Release", **other}


def made(kind, folder, work, options, chosen):
    work.mkdir(parents=True, exist_ok=True)
    return kind(chosen, options, {
        "recipe_folder": str(folder), "work": str(work), "source_folder": str(work / "source"),
        "export_sources_folder": str(work / "source"), "package_folder": str(work / "package"),
        "tested_reference_str": "verge/0.1.0"})


def check(right, what):
    if not right:
        sys.exit(f"conan: {what}")


def reads(kind, folder, work, version):
    check(kind.name == "verge" and kind.version == version, f"it is {kind.name} {kind.version}, not verge {version}")
    for wrong in ({"os": "Windows"}, {"arch": "x86"}, {"cppstd": "17"}):
        try:
            made(kind, folder, work, {}, settings(**wrong)).validate()
        except ConanInvalidConfiguration:
            continue
        sys.exit(f"conan: it takes {wrong}")
    for shared in (True, False):
        recipe = made(kind, folder, work, {"shared": shared}, settings())
        recipe.configure()
        recipe.validate()
        recipe.layout()
        recipe.generate()
        wanted = "-DVERGE_LIBRARIES=" + ("shared" if shared else "static")
        check(wanted in recipe.definitions, f"shared={shared} gives {recipe.definitions}")
    options = (folder.parents[1] / "CMakeLists.txt").read_text()
    for definition in recipe.definitions:
        name = definition[2:].split("=")[0]
        check(f"({name} " in options, f"it sets {name}, which CMakeLists.txt does not know")


def builds(kind, folder, work, shared):
    recipe = made(kind, folder, work, {"shared": shared}, settings())
    recipe.export_sources()
    recipe.configure()
    for step in (recipe.validate, recipe.layout, recipe.generate, recipe.build, recipe.package, recipe.package_info):
        step()
    package = work / "package"
    for file in ("include/verge/verge.h", "licenses/Apache-2.0.txt"):
        check((package / file).exists(), f"the package has no {file}")
    found = {f.suffix for f in (package / "lib").iterdir() if f.suffix in (".a", ".so")}
    check(found == {".so" if shared else ".a"}, f"shared={shared}, and the package has {found}")

    test_folder = folder / "test_package"
    test = made(recipe_in(test_folder / "conanfile.py"), test_folder, work / "test_package", {}, settings())
    test.source_folder = str(test_folder)
    test.dependencies = [recipe]
    test.requirements()
    check(test.required == ["verge/0.1.0"], f"the test requires {test.required}")
    test.layout()
    for generator in test.generators if not isinstance(test.generators, str) else [test.generators]:
        {"CMakeDeps": CMakeDeps, "CMakeToolchain": CMakeToolchain}[generator](test).generate()
    test.run_environment = {**os.environ, "LD_LIBRARY_PATH": str(package / "lib")}
    test.build()
    test.test()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("version")
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--read", action="store_true")
    given = parser.parse_args()
    folder, work = given.folder.resolve(), given.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    kind = recipe_in(folder / "conanfile.py")
    if given.read:
        reads(kind, folder, work, given.version)
        made(recipe_in(folder / "test_package/conanfile.py"), folder, work, {}, settings()).requirements()
    else:
        builds(kind, folder, work, given.shared)


if __name__ == "__main__":
    main()
