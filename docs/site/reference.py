# SPDX-License-Identifier: Apache-2.0
"""The reference: a page for each public header.

Doxygen reads the headers and says which names there are, where, and how they are declared. The text
is that of the comments as they stand: `///` before a declaration, `///<` after it. Lines that are
indented by three blanks are C++, by five a drawing or an output. Each C++ block must be in
examples/reference, which is compiled.

Every public name must have a comment: types, functions, fields, enumerators, aliases. An overload
that follows another on the next line shares its comment, and stands with it in one block. What every
C++ programmer knows needs none: copies, moves, destructors, swap, operator bool and ==.
"""

import pathlib
import re
import subprocess
import xml.etree.ElementTree as xml

DOXYFILE = """
INPUT = {root}/include/verge
FILE_PATTERNS = *.h
RECURSIVE = NO
EXTRACT_ALL = YES
EXTRACT_STATIC = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
OUTPUT_DIRECTORY = {out}
STRIP_FROM_PATH = {root}/include
BUILTIN_STL_SUPPORT = YES
MACRO_EXPANSION = YES
QUIET = YES
WARNINGS = NO
WARN_IF_DOC_ERROR = NO
AUTOLINK_SUPPORT = NO
"""


class Header:
    def __init__(self, root, path):
        self.name = path.relative_to(root / "include").as_posix()
        self.lines = path.read_text().splitlines()

    def comment_before(self, line):
        """The `///` lines above a declaration that begins at or above this line (from 1)."""
        i = line - 2
        while i >= 0 and re.match(
                r"\s*(template\b|requires\b|\[\[|friend\b|(class|typename|std::).*[>,]$)", self.lines[i]):
            i -= 1
        comment = []
        while i >= 0 and re.match(r"\s*///(?!<)", self.lines[i]):
            comment.append(re.sub(r"^\s*/// ?", "", self.lines[i]))
            i -= 1
        return comment[::-1]

    def comment_after(self, line):
        match = re.search(r"///< ?(.*)$", self.lines[line - 1])
        if not match:
            return []
        comment, i = [match.group(1)], line
        while i < len(self.lines) and re.match(r"\s*///< ?", self.lines[i]):
            comment.append(re.sub(r"^\s*///< ?", "", self.lines[i]))
            i += 1
        return comment

    def essay(self):
        """The comment before the first namespace, or at the top."""
        for i, line in enumerate(self.lines):
            if re.match(r"namespace verge", line) or line.startswith("#define"):
                found = self.comment_before(i + 1)
                if found:
                    return found
        top = []
        for line in self.lines:
            if not re.match(r"//", line):
                break
            top.append(re.sub(r"^///? ?", "", line))
        return top


def parts(comment):
    """A comment as [("text" | "cpp" | "drawing" | "table", lines)]. What is indented by two or three blanks is C++,
    by four or more a drawing or an output; unless it continues an item of a list."""
    found, listed = [], False
    for line in comment:
        depth = len(line) - len(line.lstrip())
        if not line.strip():
            kind = found[-1][0] if found else "text"
            listed = False
        elif re.match(r" {0,3}(-|\d+\.) ", line):
            kind, listed = "text", True
        elif line.lstrip().startswith("|"):
            kind = "table"
        elif depth < 2 or listed:
            kind = "text"
            listed = listed and depth >= 2
        elif found and found[-1][0] in ("cpp", "drawing"):
            kind = found[-1][0]
        else:
            kind = "cpp" if depth < 4 else "drawing"
        if not found or found[-1][0] != kind:
            found.append((kind, []))
        found[-1][1].append(line)
    for kind, lines in found:
        while kind != "text" and not lines[-1].strip():
            lines.pop()
    return found


def dedented(lines):
    depth = min(len(l) - len(l.lstrip()) for l in lines if l.strip())
    return [l[depth:] for l in lines]


def table(lines):
    """Its rows. One whose first cell is empty continues the one before."""
    rows = []
    for line in lines:
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if rows and not cells[0]:
            rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], cells)]
        else:
            rows.append(cells)
    return ["| " + " | ".join(r) + " |" for r in rows]


def markdown(comment):
    """A comment as Markdown."""
    out = []
    for kind, lines in parts(comment):
        if kind == "table":
            out += ["", *table(l for l in lines if l.strip()), ""]
            continue
        if kind != "text":
            out += ["", "```" + ("cpp" if kind == "cpp" else "text"), *dedented(lines), "```", ""]
            continue
        for line in lines:
            item = re.match(r" {0,3}(-|\d+\.) ", line)
            if item and out and out[-1].strip() and not re.match(r"(-|\d+\.) |    ", out[-1]):
                out.append("")
            if not item and re.match(r" {2,}\S", line):
                out.append("    " + line.strip())
            elif re.search(r"<\w[\w:/. ]*>", line) and "`" not in line:
                out.append(line.strip().replace("<", "&lt;"))
            else:
                out.append(line.strip())
    text = "\n".join(out)
    text = re.sub(r"\bdocs/([a-z-]+)\.md", r"[\1](../\1.md)", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def plain(element):
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip() if element is not None else ""


def declaration(member):
    """As it is declared, in one or more lines."""
    kind = member.get("kind")
    name = plain(member.find("name"))
    kind_of = plain(member.find("type"))
    if kind == "typedef":
        text = f"using {name} = {kind_of};"
    elif kind == "variable":
        text = f"{kind_of} {name}{plain(member.find('argsstring'))}" \
               f"{plain(member.find('initializer'))};"
    elif kind == "define":
        value = plain(member.find("initializer")).lstrip("\\ ")
        text = f"#define {name} {value}"
    else:
        text = f"{kind_of} {name}{plain(member.find('argsstring'))};".strip()
        if member.get("static") == "yes" and not text.startswith("static"):
            text = "static " + text
    parameters = member.find("templateparamlist")
    if parameters is not None:
        text = template(parameters) + "\n" + text
    return tidy(text)


def template(parameters):
    return "template <" + ", ".join(
        ((plain(p.find("type")) + " " + plain(p.find("declname"))).strip() +
         (" = " + plain(p.find("defval")) if p.find("defval") is not None else ""))
        for p in parameters.findall("param")) + ">"


def tidy(text):
    text = re.sub(r"\[\[nodiscard(\(.*?\))?\]\] ?", "", text)
    text = re.sub(r'nodiscard\("[^"]*"\) ?', "", text)
    text = text.replace("typename detail::results_of< T >::type", "std::vector< T >")
    text = re.sub(r"detail::(\w+_operation)\b(< .*? >)?", "/* operation */", text)
    text = re.sub(r"(\w|>) (&{1,2}|\*)", r"\1\2", text)
    text = re.sub(r"([\w>](?:&{1,2}|\*))(?=\w)", r"\1 ", text)
    text = re.sub(r"< ", "<", re.sub(r" >", ">", text))
    return wrapped(text)


def wrapped(text, width=88):
    lines = []
    for line in text.splitlines():
        while len(line) > width:
            at = line.rfind(", ", 0, width)
            if at < 8:
                break
            lines.append(line[:at + 1])
            line = "    " + line[at + 2:]
        lines.append(line)
    return "\n".join(lines)


def examples(root, header):
    """What is wrong with the C++ of a header's comments: each paragraph of it must be, but for blanks and
    line breaks, in examples/reference/NAME.cc."""
    comments, faults = [], []
    for number, line in enumerate(header.lines, 1):
        match = re.match(r"\s*///(?!<) ?(.*)$", line)
        if match and comments and comments[-1][1] == number - 1:
            comments[-1][2].append(match.group(1))
            comments[-1][1] = number
        elif match:
            comments.append([number, number, [match.group(1)]])
    file = root / "examples/reference" / (pathlib.Path(header.name).stem + ".cc")
    built = re.sub(r"\s", "", file.read_text()) if file.exists() else ""
    for first, _, comment in comments:
        for kind, lines in parts(comment):
            for paragraph in "\n".join(lines).split("\n\n") if kind == "cpp" else []:
                if re.sub(r"\s", "", paragraph) not in built:
                    faults.append(f"include/{header.name}:{first}: this is not in {file.relative_to(root)}, "
                                  f"which is compiled:\n{paragraph}")
    return faults


class Writer:
    def __init__(self, root, doxygen):
        self.root, self.xml = root, doxygen
        self.headers = {f"verge/{p.name}": Header(root, p)
                        for p in sorted((root / "include/verge").glob("*.h"))}
        self.parts = {name: [] for name in self.headers}  # header -> [(line, text)]
        self.names, self.faults = [], []

    def where(self, element):
        place = element.find("location")
        if place is None:
            return None, 0
        file = place.get("declfile") or place.get("file")
        line = int(place.get("declline") or place.get("line"))
        file = re.sub(r"^.*?(verge/[\w.]+)$", r"\1", file)
        return (file if file in self.headers else None), line

    def comment(self, header, line):
        return self.headers[header].comment_before(line) or self.headers[header].comment_after(line)

    def members(self, scope, elements, level, prefix):
        """The text of members, overloads of one name together."""
        groups, order = {}, []
        for m in elements:
            header, line = self.where(m)
            name = plain(m.find("name"))
            if header is None or name.startswith("@") or m.get("kind") == "friend" and \
                    plain(m.find("type")) in ("class", "struct", "friend class", ""):
                continue
            key = (header, name)
            if key not in groups:
                groups[key] = []
                order.append((line, key))
            groups[key].append((line, m))
        for first, key in sorted(order):
            header, name = key
            blocks, pending, documented, before = [], [], False, 0
            for line, m in sorted(groups[key], key=lambda x: x[0]):
                comment = markdown(self.comment(header, line))
                if not comment and not (documented and self.follows(header, before, line)) and \
                        not self.needs_no_comment(scope, name, m):
                    self.faults.append(f"include/{header}:{line}: {prefix}{name} has no comment")
                before = line
                if comment and pending:
                    blocks.append(self.block(*pending))
                    pending = []
                if comment:
                    documented = True
                    pending = [[declaration(m)], comment]
                elif pending:
                    pending[0].append(declaration(m))
                else:
                    pending = [[declaration(m)], ""]
                if m.get("kind") == "enum":
                    pending[0][-1] = f"enum class {name};"
                    pending[1] += self.enumerators(m, header, f"{prefix}{name}")
            blocks.append(self.block(*pending))
            if not documented and (name.startswith("~") or name == "operator="):
                continue  # nothing that a reader does not know
            anchor = slug(f"{prefix}{name}")
            heading = f"{'#' * level} {escape(name)} {{ #{anchor} .reference-name }}\n\n"
            yield header, first, heading + "\n\n".join(blocks)
            if name not in ("operator==", "operator=") and not name.startswith("~"):
                self.names.append((f"{prefix}{name}", header, anchor))

    def follows(self, header, first, second):
        """Whether nothing but the first declaration, and no empty line, is between the two."""
        return all(l.strip() for l in self.headers[header].lines[first - 1:second - 1])

    @staticmethod
    def needs_no_comment(scope, name, member):
        if name.startswith("~") or name in ("swap", "operator=", "operator==", "operator bool"):
            return True
        args = plain(member.find("argsstring"))
        return bool(scope) and name == scope and \
            bool(re.match(rf"\((const )?{scope}( ?<.*>)? ?&{{1,2}} ?\w*\)", args))

    def enumerators(self, member, header, name):
        rows = []
        for value in member.findall("enumvalue"):
            each = plain(value.find("name"))
            text = plain(value.find("briefdescription")) or plain(value.find("detaileddescription"))
            if not text:
                _, line = self.where(member)
                self.faults.append(f"include/{header}:{line}: {name}::{each} has no comment")
            rows.append(f"| `{each}` | {text} |")
        return "\n\n| | |\n|---|---|\n" + "\n".join(rows)

    @staticmethod
    def block(declarations, comment):
        return "```cpp\n" + "\n".join(declarations) + "\n```\n\n" + comment

    def compound(self, file):
        definition = xml.parse(self.xml / "xml" / file).getroot().find("compounddef")
        header, line = self.where(definition)
        full = plain(definition.find("compoundname"))
        if header is None or "detail" in full or "<" in full and not full.startswith("verge::"):
            return
        name = full.removeprefix("verge::")
        if definition.get("prot") == "private" or full.startswith("std::"):
            return
        comment = markdown(self.comment(header, line))
        parameters = definition.find("templateparamlist")
        declared = (template(parameters) + "\n" if parameters is not None else "") + \
            f"{definition.get('kind')} {name.split('::')[-1]}"
        bases = [plain(b) for b in definition.findall("basecompoundref") if "detail" not in plain(b)]
        if bases:
            declared += " : public " + ", ".join(bases)
        if not comment:
            self.faults.append(f"include/{header}:{line}: {name} has no comment")
        anchor = slug(name)
        text = f"## {escape(name)} {{ #{anchor} .reference-name }}\n\n```cpp\n{tidy(declared)};\n```\n\n{comment}\n\n"
        self.names.append((name, header, anchor))
        elements = [m for section in definition.findall("sectiondef")
                    if section.get("kind", "").startswith(("public", "friend"))
                    for m in section.findall("memberdef")
                    if "detail::" not in plain(m.find("name")) and
                    not (section.get("kind") == "friend" and "operator" not in plain(m.find("name")))]
        fields = [m for m in elements if m.get("kind") == "variable"]
        others = [m for m in elements if m.get("kind") != "variable"]
        if fields:
            text += self.fields(header, fields, name)
        for _, _, part in self.members(name.split("::")[-1], others, 3, f"{name}::"):
            text += part + "\n\n"
        self.parts[header].append((line, text))

    def fields(self, header, fields, scope):
        rows = []
        for m in fields:
            _, line = self.where(m)
            comment = " ".join(self.comment(header, line)).strip()
            name = plain(m.find("name"))
            value = plain(m.find("initializer")).strip("{}= ")
            kind = tidy(plain(m.find("type"))).replace("|", "\\|")
            if not comment:
                self.faults.append(f"include/{header}:{line}: {scope}::{name} has no comment")
            rows.append(f"| `{name}` | `{kind}`{f' = `{value}`' if value else ''} | "
                        f"{comment.replace('|', chr(92) + '|')} |")
        return "| member | type | |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"

    def read(self):
        index = xml.parse(self.xml / "xml/index.xml").getroot()
        for c in index.findall("compound"):
            if c.get("kind") in ("class", "struct"):
                self.compound(c.get("refid") + ".xml")
            elif c.get("kind") == "namespace" and plain(c.find("name")) == "verge":
                space = xml.parse(self.xml / "xml" / (c.get("refid") + ".xml")).getroot()
                elements = [m for s in space.iter("sectiondef") for m in s.findall("memberdef")]
                for header, line, text in self.members("", elements, 2, ""):
                    self.parts[header].append((line, text))
            elif c.get("kind") == "file" and plain(c.find("name")) == "version.h":
                file = xml.parse(self.xml / "xml" / (c.get("refid") + ".xml")).getroot()
                for m in file.iter("memberdef"):
                    if m.get("kind") == "define":
                        self.parts["verge/version.h"].append(
                            (int(m.find("location").get("line")),
                             f"## {plain(m.find('name'))}\n\n```cpp\n{declaration(m)}\n```\n"))


def slug(name):
    return re.sub(r"[^\w]+", "-", name.replace("~", "destroy-")).strip("-").lower()


def escape(name):
    return f"`{name}`"


def first_sentence(essay):
    text = " ".join(essay).strip()
    return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(":") if text else ""


def write(root, out):
    """Writes the pages under out/src/reference. Returns [(title, page)] and what is wrong."""
    doxygen = out / "doxygen"
    doxygen.mkdir(parents=True, exist_ok=True)
    (doxygen / "Doxyfile").write_text(DOXYFILE.format(root=root, out=doxygen))
    subprocess.run(["doxygen", "Doxyfile"], cwd=doxygen, check=True)
    w = Writer(root, doxygen)
    w.read()
    folder = out / "src/reference"
    folder.mkdir(parents=True, exist_ok=True)
    pages, rows = [], []
    for name, header in w.headers.items():
        stem = pathlib.Path(name).stem
        essay = header.essay()
        w.faults += examples(root, header)
        if not essay:
            w.faults.append(f"include/{name}: it does not begin with what it is for")
        body = "\n\n".join(text for _, text in sorted(w.parts[name], key=lambda p: p[0]))
        (folder / f"{stem}.md").write_text(
            f"# &lt;{name}&gt;\n\n{markdown(essay)}\n\n{body}\n")
        pages.append((name, f"reference/{stem}.md"))
        rows.append(f"| [&lt;{name}&gt;]({stem}.md) | {first_sentence(essay)} |")
    names = sorted(set(w.names), key=lambda n: n[0].lower())
    listed = "\n".join(f"- [{escape(n)}]({pathlib.Path(h).stem}.md#{a})" for n, h, a in names)
    (folder / "index.md").write_text(
        "# Reference\n\nA page for each header, from its comments. `<verge/verge.h>` includes all that need no other "
        "library.\n\n| header | |\n|---|---|\n" + "\n".join(rows) + f"\n\n## Every name\n\n{listed}\n")
    if len(names) < 100:
        w.faults.append(f"Doxygen found {len(names)} names only")
    return pages, w.faults
