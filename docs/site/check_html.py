#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the pages that mkdocs has made: every link leads to a page and a place that are there, and
nothing is loaded from another machine.

usage: check_html.py HTML
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.places, self.links, self.loads = set(), [], []

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if a.get("id"):
            self.places.add(a["id"])
        if tag == "a" and a.get("name"):
            self.places.add(a["name"])
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if a.get("src"):
            self.loads.append(a["src"])
        if tag == "link" and a.get("href") and a.get("rel") not in ("canonical",):
            self.loads.append(a["href"])


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = {}
    for file in root.rglob("*.html"):
        pages[file] = Page()
        pages[file].feed(file.read_text())
    faults = []
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links begin at the root of a server
        for link in page.links + page.loads:
            url = urllib.parse.urlsplit(link)
            if url.scheme in ("http", "https", "mailto") or url.netloc:
                if link in page.loads:
                    faults.append(f"{file.relative_to(root)} loads {link}")
                continue
            if url.scheme:
                continue
            target = (file.parent / urllib.parse.unquote(url.path)).resolve() if url.path else file
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                faults.append(f"{file.relative_to(root)} links to {link}, which is not there")
            elif url.fragment and target in pages and \
                    urllib.parse.unquote(url.fragment) not in pages[target].places | {"__search"}:
                faults.append(f"{file.relative_to(root)} links to {link}: no such place")
    for css in root.rglob("*.css"):
        text = css.read_text()
        if "url(http" in text or "url(//" in text or "@import" in text:
            faults.append(f"{css.relative_to(root)} loads from elsewhere")
    for fault in sorted(set(faults)):
        print(f"site: {fault}", file=sys.stderr)
    print(f"site: {len(pages)} pages, {sum(len(p.links) for p in pages.values())} links")
    return 1 if faults or len(pages) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
