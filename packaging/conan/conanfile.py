# SPDX-License-Identifier: Apache-2.0
"""verge for Conan 2: `conan create packaging/conan`."""

import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir

required_conan_version = ">=2.0"


class VergeConan(ConanFile):
    name = "verge"
    version = "0.1.0"
    license = "Apache-2.0"
    url = homepage = "https://example.org/verge"
    description = "A timer runtime for C++ servers"
    topics = ("timer", "coroutines", "scheduler", "deadline")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False]}
    default_options = {"shared": False, "fPIC": True}

    # A shared library is position independent anyway, and the objects of the static one are too: they
    # are the same.
    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("verge needs Linux on a 64-bit processor")
        check_min_cppstd(self, 20)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, os.pardir, os.pardir)
        for pattern in ("CMakeLists.txt", "cmake/*", "include/*", "src/*", "LICENSES/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCH", "EXAMPLES", "TOOLS", "SERVER", "C"):
            toolchain.cache_variables[f"VERGE_BUILD_{part}"] = False
        # Only what was asked for is built and installed.
        toolchain.cache_variables["VERGE_LIBRARIES"] = "shared" if self.options.shared else "static"
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "*", os.path.join(self.source_folder, "LICENSES"),
             os.path.join(self.package_folder, "licenses"))
        # CMakeDeps and PkgConfigDeps write their own, from package_info().
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        self.cpp_info.libs = ["verge"]
        self.cpp_info.system_libs = ["pthread"]
        self.cpp_info.set_property("cmake_file_name", "verge")
        self.cpp_info.set_property("cmake_target_name", "verge::verge")
        self.cpp_info.set_property("pkg_config_name", "verge")
