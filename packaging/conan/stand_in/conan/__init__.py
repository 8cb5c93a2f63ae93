# SPDX-License-Identifier: Apache-2.0
"""What Conan 2 gives a recipe, as far as ours use it: Conan is not in Debian. create.py runs them with it."""

import subprocess
import types


class Options:
    """The options of a recipe: each known, each with an allowed value."""

    def __init__(self, allowed, values):
        self._allowed = dict(allowed)
        self._values = {}
        for name, value in values.items():
            if value not in self._allowed[name]:
                raise ValueError(f"option {name} may not be {value}")
            self._values[name] = value

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            raise AttributeError(f"there is no option {name}")
        return self._values[name]

    def rm_safe(self, name):
        self._values.pop(name, None)


class CppInfo:
    def __init__(self):
        self.libs, self.system_libs, self.includedirs, self.libdirs = [], [], ["include"], ["lib"]
        self.properties = {}

    def set_property(self, name, value):
        self.properties[name] = value


class ConanFile:
    settings, options, default_options, generators = (), {}, {}, ()

    def __init__(self, settings, options, folders):
        self.settings = types.SimpleNamespace(**{name: settings[name] for name in type(self).settings})
        self.options = Options(type(self).options, {**type(self).default_options, **options})
        self.cpp_info = CppInfo()
        self.required = []
        self.__dict__.update(folders)

    def requires(self, reference):
        self.required.append(reference)

    def run(self, command, env=None):
        subprocess.run(command, shell=True, check=True, env=getattr(self, "run_environment", None))
