# SPDX-License-Identifier: Apache-2.0
"""What is built, and whether it may run here."""

from conan.errors import ConanInvalidConfiguration


def check_min_cppstd(recipe, standard):
    if int(recipe.settings.compiler.cppstd) < standard:
        raise ConanInvalidConfiguration(f"C++{standard} is needed")


def can_run(_recipe):
    return True
