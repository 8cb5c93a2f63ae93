# SPDX-License-Identifier: Apache-2.0
"""Files of a package."""

import fnmatch
import pathlib
import shutil


def copy(_recipe, pattern, source, to):
    root, found = pathlib.Path(source), 0
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root).as_posix()
        if file.is_file() and fnmatch.fnmatch(name, pattern):
            (pathlib.Path(to) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, pathlib.Path(to) / name)
            found += 1
    if not found:
        raise FileNotFoundError(f"{pattern} in {source}: there is no such file")


def rmdir(_recipe, folder):
    shutil.rmtree(folder, ignore_errors=True)
