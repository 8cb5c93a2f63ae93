#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What workflow.py finds in a workflow that cannot work."""

import pathlib
import sys
import tempfile
import unittest

import workflow

TEXT = (workflow.ROOT / ".github/workflows/ci.yml").read_text()


class Workflow(unittest.TestCase):
    def faults(self, old="", new=""):
        self.assertIn(old, TEXT)
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(TEXT.replace(old, new))
            file.flush()
            return workflow.faults_of(pathlib.Path(file.name))

    def test_ours_has_none(self):
        self.assertEqual(self.faults(), [])

    def test_a_compiler_that_the_image_does_not_have(self):
        found = self.faults('"debian:12", compiler: clang++-14, package: clang-14',
                            '"debian:12", compiler: clang++-18, package: clang-18')
        self.assertIn("debian:12, clang++-18: the image has no such compiler", found)
        self.assertIn("no row has {'clang++-14'}", found)

    def test_a_package_that_is_not_the_compilers(self):
        self.assertEqual(self.faults("package: clang-15", "package: clang++-15")[:1],
                         ["debian:12, clang++-15: the package is clang++-15"])

    def test_a_package_that_is_not_installed(self):
        self.assertEqual(self.faults(" rocksdb-devel", ""), ["fedora:41, g++: these are not installed: rocksdb-devel"])
        self.assertEqual(self.faults("apk add bash git", "apk add git"),
                         ["alpine:3.20, g++: these are not installed: bash"])

    def test_a_command_that_is_not_there(self):
        self.assertIn("./dev does not know: ./dev doc", self.faults("./dev docs", "./dev doc"))
        self.assertIn("./dev does not know: ./dev check package", self.faults("check packages", "check package"))
        self.assertIn("it runs .ci/go, which cannot be run", self.faults("- run: .ci/run", "- run: .ci/go"))

    def test_a_container_in_which_the_thread_sanitizer_does_not_start(self):
        self.assertEqual(self.faults("--security-opt seccomp=unconfined", ""), ["the container forbids personality()"])

    def test_what_is_no_yaml(self):
        self.assertEqual(len(self.faults("jobs:", "jobs: [")), 1)


if __name__ == "__main__":
    try:
        import yaml  # noqa: F401
    except ImportError:
        print("python3-yaml is not installed")
        sys.exit(77)
    unittest.main()
