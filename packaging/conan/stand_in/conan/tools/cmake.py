# SPDX-License-Identifier: Apache-2.0
"""CMake: its variables, its packages, its calls."""

import pathlib
import subprocess


def cmake_layout(recipe):
    recipe.build_folder = str(pathlib.Path(recipe.work) / "build")
    recipe.generators_folder = str(pathlib.Path(recipe.build_folder) / "generators")
    recipe.cpp = type("Cpp", (), {"build": type("Build", (), {"bindir": recipe.build_folder})})
    pathlib.Path(recipe.generators_folder).mkdir(parents=True, exist_ok=True)


class CMakeToolchain:
    def __init__(self, recipe):
        self.recipe, self.cache_variables = recipe, {}

    def generate(self):
        values = dict(self.cache_variables)
        values.setdefault("BUILD_SHARED_LIBS", getattr(self.recipe.options, "shared", False)
                          if type(self.recipe).options else False)
        self.recipe.definitions = [
            f"-D{name}={'ON' if value is True else 'OFF' if value is False else value}"
            for name, value in values.items()]


class CMakeDeps:
    """A package of CMake for each requirement, from what its recipe says of itself and from nothing else."""

    def __init__(self, recipe):
        self.recipe = recipe

    def generate(self):
        for package in getattr(self.recipe, "dependencies", []):
            info = package.cpp_info
            name, target = info.properties["cmake_file_name"], info.properties["cmake_target_name"]
            folder = pathlib.Path(package.package_folder)
            libraries = []
            for library in info.libs:
                files = [f for d in info.libdirs for f in (folder / d).glob(f"lib{library}.*")
                         if f.suffix in (".a", ".so")]
                if len(files) != 1:
                    raise FileNotFoundError(f"the package has {len(files)} libraries {library}: {files}")
                libraries.append(str(files[0]))
            libraries += info.system_libs
            (pathlib.Path(self.recipe.generators_folder) / f"{name}-config.cmake").write_text(
                f"add_library({target} INTERFACE IMPORTED)\n"
                f"set_target_properties({target} PROPERTIES\n"
                f"  INTERFACE_INCLUDE_DIRECTORIES \"{';'.join(str(folder / d) for d in info.includedirs)}\"\n"
                f"  INTERFACE_COMPILE_FEATURES cxx_std_20\n"
                f"  INTERFACE_LINK_LIBRARIES \"{';'.join(libraries)}\")\n")


class CMake:
    def __init__(self, recipe):
        self.recipe = recipe

    def _run(self, *arguments):
        subprocess.run(["cmake", *arguments], check=True, stdout=subprocess.DEVNULL)

    def configure(self):
        r = self.recipe
        self._run("-S", r.source_folder, "-B", r.build_folder, "-G", "Ninja", "-DCMAKE_INSTALL_LIBDIR=lib",
                  f"-DCMAKE_BUILD_TYPE={r.settings.build_type}", f"-DCMAKE_PREFIX_PATH={r.generators_folder}",
                  *getattr(r, "definitions", []))

    def build(self):
        self._run("--build", self.recipe.build_folder)

    def install(self):
        self._run("--install", self.recipe.build_folder, "--prefix", self.recipe.package_folder)
