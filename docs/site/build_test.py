#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What build.py and reference.py refuse: a public name without a comment, an example that is not compiled,
a link into nothing."""

import pathlib
import shutil
import sys
import tempfile
import textwrap
import unittest

import build
import figures
import reference

HEADER = """\
    #pragma once

    /// What it is for:
    ///
    ///   verge::run(1);
    ///
    ///   verge::run(2);
    ///
    /// And what it does:
    ///
    ///     a drawing  |---|
    namespace verge {

    /// Options.
    struct options {
      int with = 1;     ///< a comment
      int without = 2;
    };

    /// Kinds.
    enum class kind {
      first,  ///< the first
      second,
    };

    /// Runs.
    void run(int n);
    void run(long n);

    void run(char c);

    void nothing_is_said_of_it();

    /// A class.
    class thing {
     public:
      thing();
      ~thing();
      thing(const thing&);
      thing(int n);
      /// With a comment.
      int size() const;
      int weight() const;
      using value_type = int;
    };

    }  // namespace verge
    """


@unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
class Reference(unittest.TestCase):
    def faults(self, header, example):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "include/verge").mkdir(parents=True)
            (root / "examples/reference").mkdir(parents=True)
            (root / "include/verge/thing.h").write_text(textwrap.dedent(header))
            (root / "examples/reference/thing.cc").write_text(example)
            return [f for f in reference.write(root, root / "out")[1] if not f.startswith("Doxygen found")]

    def test_each_name_without_a_comment_is_found(self):
        found = [f.split(": ")[1].split(" ")[0] for f in self.faults(HEADER, "verge::run(1); verge::run(2);")]
        self.assertEqual(sorted(found), ["kind::second", "nothing_is_said_of_it", "options::without", "run",
                                         "thing::thing", "thing::thing", "thing::value_type", "thing::weight"])

    def test_each_example_that_is_not_compiled_is_found(self):
        faults = [f for f in self.faults(HEADER, "verge::run( 1 );") if "compiled" in f]
        self.assertEqual(len(faults), 1)
        self.assertIn("verge::run(2)", faults[0])


class Figures(unittest.TestCase):
    def test_the_readme_must_have_them(self):
        import json
        readme = (build.ROOT / "README.md").read_text()
        json_ = json.loads((build.ROOT / "docs/benchmarks.json").read_text())
        self.assertEqual(figures.filled_in(readme, figures.Report(json_)), readme)
        for r in json_["results"]:
            if r["system"] == "verge/hybrid" and r["workload"] == "fill":
                r["median"] *= 10
        slower = figures.filled_in(readme, figures.Report(json_))
        self.assertEqual(len(set(slower.splitlines()) - set(readme.splitlines())), 3)  # two rows, and the summary


class Comments(unittest.TestCase):
    def test_what_is_code_and_what_is_not(self):
        kinds = [(k, len(l)) for k, l in reference.parts(
            ["Text.", "", "  code();", "", "  more();", "Text.", "", "    drawing", "", "- an item", "  goes on",
             "", "1. another", "   goes on", "", "| a | b |", "|---|---|"])]
        self.assertEqual(kinds, [("text", 2), ("cpp", 3), ("text", 2), ("drawing", 1), ("text", 6), ("table", 2)])


class Links(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.site = build.Site(pathlib.Path(self.folder.name), pathlib.Path("/nowhere"), False)
        self.addCleanup(self.folder.cleanup)

    def test_a_link_to_a_file_that_is_not_there_is_found(self):
        self.site.links("docs/x.md", "x.md", "see [a](nowhere.md) and [b](index.md)")
        self.assertEqual(self.site.errors, ["docs/x.md: links to nowhere.md, which is not there"])

    def test_a_link_to_a_place_that_is_not_there_is_found(self):
        text = self.site.links("docs/x.md", "x.md", "# One\n\n## Two `2`, three\n\n[a](#two-2-three) [b](#four)\n")
        self.site.write("x.md", text)
        self.site.places()
        self.assertEqual(self.site.errors, ["docs/x.md: links to x.md#four: no such place"])

    def test_a_program_that_is_not_there_is_found(self):
        self.site.expand("docs/x.md", "<!-- output nothing -->")
        self.assertEqual(self.site.errors, ["docs/x.md: output nothing: there is no such program"])

    def test_a_part_that_is_not_there_is_found(self):
        self.site.expand("docs/x.md", "<!-- include examples/first.cc#nothing -->")
        self.assertEqual(self.site.errors, ["docs/x.md: include examples/first.cc#nothing: there is no part [nothing]"])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
