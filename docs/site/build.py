#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lays out the site for mkdocs, from docs/, the examples, what they print, and the headers.

usage: build.py OUT --examples FOLDER [--check]

  <!-- include examples/x.cc -->         the file, or with #name the part between // [name] and // [/name]
  <!-- output x -->                      what FOLDER/x prints when it is run; it must end with 0
  <!-- drawing heap -->                  an animated drawing (drawings.py)

A link out of docs/ leads to a page with that file. The reference is reference.py's. Everything that
does not fit is an error: a part that is not there, an example that fails, a link into nothing. With
--check the programs are not run, only looked for: ./dev test does that, without mkdocs.
"""

import argparse
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import textwrap

import drawings
import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".c": "c", ".go": "go", ".py": "python", ".sh": "bash",
             ".rs": "rust", ".cmake": "cmake", ".json": "json", ".txt": "cmake", ".js": "js",
             ".ts": "ts", ".java": "java", ".toml": "toml", ".yml": "yaml"}


class Site:
    def __init__(self, out, examples, run):
        self.out, self.examples, self.run = out, examples, run
        self.errors, self.outside, self.done = [], [], set()
        self.anchors = []  # (the source of a link, the page it leads to, the place on it)

    def error(self, page, text):
        self.errors.append(f"{page}: {text}")

    # ---- Parts of a page

    def expand(self, page, text):
        def line(match):
            what, argument = match.group(1), match.group(2)
            try:
                return {"include": self.include, "output": self.output,
                        "drawing": self.drawing}[what](argument)
            except (OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
                self.error(page, f"{what} {argument}: {e}")
                return ""
        return re.sub(r"^<!-- (include|output|drawing) (\S+) -->$", line, text, flags=re.M)

    def include(self, argument):
        name, _, part = argument.partition("#")
        lines = (ROOT / name).read_text().splitlines()
        if part:
            begin = next((i for i, l in enumerate(lines) if l.strip() == f"// [{part}]"), None)
            end = next((i for i, l in enumerate(lines) if l.strip() == f"// [/{part}]"), None)
            if begin is None or end is None:
                raise ValueError(f"there is no part [{part}]")
            lines = lines[begin + 1:end]
        lines = [l for l in lines if not re.fullmatch(r"\s*// \[/?\w+\]", l)]
        code = textwrap.dedent("\n".join(lines)).strip("\n")
        language = LANGUAGES[pathlib.Path(name).suffix]
        return f'```{language} title="{name}"\n{code}\n```'

    def output(self, program):
        if not self.run:
            if not (self.examples / program).is_file():
                raise ValueError("there is no such program")
            return ""
        ran = subprocess.run([self.examples / program], stdout=subprocess.PIPE, timeout=300,
                             check=True, text=True)
        return f"It prints:\n\n```text\n{ran.stdout.rstrip()}\n```"

    def drawing(self, name):
        d = drawings.ALL[name]()
        return (f"{d.svg()}\n\n<details class=\"drawing-steps\" markdown>\n<summary>The steps</summary>\n\n"
                f"{d.steps_as_list()}\n\n</details>")

    # ---- Links

    def links(self, source, page, text):
        """Rewrites the links of a Markdown file of the tree, `source`, which becomes `page`."""
        def link(match):
            target, anchor = match.group(1), match.group(2) or ""
            if re.match(r"[a-z]+:", target):
                return match.group(0)
            if not target:
                self.anchors.append((source, page, anchor[1:]))
                return match.group(0)
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            if path.startswith("docs/reference/"):
                place = path[len("docs/"):]
            elif path.startswith("docs/") and (ROOT / path).is_file():
                place = path[len("docs/"):]
            elif (ROOT / path).exists() and not path.startswith(".."):
                place = self.outside_page(path)
            else:
                self.error(source, f"links to {target}, which is not there")
                return match.group(0)
            if anchor and place.endswith(".md"):
                self.anchors.append((source, place, anchor[1:]))
            return f"]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor})"
        fences = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
        return "".join(part if part.startswith("```") else
                       re.sub(r"\]\(([^)\s#]*)(#[^)\s]*)?\)", link, part) for part in fences)

    def outside_page(self, path):
        if (ROOT / path).suffix in (".png", ".svg"):
            return path
        self.outside.append(path)
        return f"source/{path}.md"

    def write(self, page, text):
        to = self.out / "src" / page
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)

    # ---- Pages

    def documents(self):
        for source in sorted((ROOT / "docs").rglob("*")):
            relative = source.relative_to(ROOT / "docs")
            if not source.is_file() or relative.parts[0] == "site":
                continue
            if source.suffix != ".md":
                if source.suffix in (".png", ".svg", ".json"):
                    to = self.out / "src" / relative
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, to)
                continue
            text = self.expand(f"docs/{relative}", source.read_text())
            if not re.search(r"^## ", text, flags=re.M) and not text.startswith("---"):
                text = "---\nhide:\n  - toc\n---\n\n" + text  # nothing to list: the code gets its room
            self.write(str(relative), self.links(f"docs/{relative}", str(relative), text))
        # Not in the navigation: so that it is looked at in a browser, wide and narrow, like the rest.
        self.write("readme.md", self.links("README.md", "readme.md", (ROOT / "README.md").read_text()))
        shutil.copy(ROOT / "docs/site/site.css", self.out / "src/site.css")

    def files_outside(self):
        while self.outside:
            path = self.outside.pop()
            if path in self.done:
                continue
            self.done.add(path)
            page, file = f"source/{path}.md", ROOT / path
            if file.is_dir():
                inside = sorted(f.name for f in file.iterdir()
                                if f.is_file() and f.name[0] != "." and f.stat().st_size < 200_000)
                rows = [f"- [{n}]({posixpath.relpath(self.outside_page(f'{path}/{n}'), posixpath.dirname(page))})"
                        for n in inside]
                self.write(page, f"# {path}\n\n" + "\n".join(rows) + "\n")
            elif file.suffix == ".md":
                self.write(page, self.links(path, page, self.expand(path, file.read_text())))
            else:
                language = LANGUAGES.get(file.suffix, "text")
                self.write(page, f"# {path}\n\n````{language}\n{file.read_text()}\n````\n")

    def places(self):
        """Every place on a page that is linked to is there."""
        for source, page, anchor in self.anchors:
            file = self.out / "src" / page
            if file.exists() and anchor not in headings(file.read_text()):
                self.error(source, f"links to {page}#{anchor}: no such place")

    def navigation(self, pages):
        config = (ROOT / "docs/site/mkdocs.yml").read_text()
        for page in sorted((ROOT / "docs").rglob("*.md")):
            name = page.relative_to(ROOT / "docs").as_posix()
            if not re.search(rf"[:-] {re.escape(name)}$", config, flags=re.M):
                self.error(f"docs/{name}", "the navigation (docs/site/mkdocs.yml) does not have it")
        entries = "".join(f'      - "{title}": {page}\n' for title, page in pages)
        (self.out / "mkdocs.yml").write_text(
            config + entries + f"docs_dir: {self.out / 'src'}\nsite_dir: {self.out / 'html'}\n")


def headings(text):
    """The places of a page: what mkdocs makes out of its headings."""
    found = set()
    text = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.M):
        given = re.search(r"\{ *#([\w-]+)", heading)
        name = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading)
        slug = given.group(1) if given else \
            re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", name).strip().lower())
        found.add(slug if slug not in found else f"{slug}_1")
    return found | set(re.findall(r'\bid="([\w-]+)"', text))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--examples", type=pathlib.Path, required=True)
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    out = given.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    if given.check and shutil.which("doxygen") is None:
        print("site: doxygen is not installed, so nothing was checked")
        return 77
    site = Site(out, given.examples.resolve(), not given.check)
    pages, faults = reference.write(ROOT, out)
    site.errors += faults
    site.documents()
    site.files_outside()
    site.places()
    site.navigation(pages)
    for e in site.errors:
        print(f"site: {e}", file=sys.stderr)
    return 1 if site.errors else 0


if __name__ == "__main__":
    sys.exit(main())
