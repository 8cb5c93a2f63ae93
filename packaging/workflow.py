#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the workflow for GitHub can work: what it calls is there, and each row gets what it needs.

usage: packaging/workflow.py FILE

It cannot be run here. What is known of the images is written down below: which compilers their package
managers have, and how they call what Debian calls otherwise.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Compilers by image: what `apt-get install` finds there.
COMPILERS = {
    "debian:12": {"g++-11", "g++-12", *(f"clang++-{n}" for n in (13, 14, 15, 16, 19))},
    "debian:13": {"g++-12", "g++-13", "g++-14", *(f"clang++-{n}" for n in (17, 18, 19))},
    "ubuntu:24.04": {*(f"g++-{n}" for n in range(9, 15)), *(f"clang++-{n}" for n in range(14, 19))},
    "fedora:41": {"g++", "clang++"},
    "alpine:3.20": {"g++", "clang++"},
}
# What ./dev test needs by its Debian name, and its name elsewhere.
NAMES = {
    "g++": ("gcc-c++", "g++"),
    "cmake": ("cmake", "cmake"),
    "ninja-build": ("ninja-build", "ninja"),
    "libgtest-dev": ("gtest-devel", "gtest-dev"),
    "libgmock-dev": ("gmock-devel", "gtest-dev"),
    "libbenchmark-dev": ("google-benchmark-devel", "benchmark-dev"),
    "pkgconf": ("pkgconf", "pkgconf"),
    "libcli11-dev": ("cli11-devel", "cli11-dev"),
    "nlohmann-json3-dev": ("json-devel", "nlohmann-json"),
    "libfmt-dev": ("fmt-devel", "fmt-dev"),
    "libboost-dev": ("boost-devel", "boost-dev"),
    "librocksdb-dev": ("rocksdb-devel", "rocksdb-dev"),
    "libpq-dev": ("libpq-devel", "libpq-dev"),
    "libssl-dev": ("openssl-devel", "openssl-dev"),
    "tzdata": ("tzdata", "tzdata"),
    "curl": ("curl", "curl"),
}
# And what the images lack that .ci/run needs: for sanitizers, and for scripts.
BESIDES = {"fedora": {"git", "python3", "libasan", "libubsan", "libtsan", "diffutils", "which"},
           "alpine": {"git", "bash", "python3", "coreutils", "util-linux", "tar", "diffutils", "linux-headers"}}
WANTED = {f"g++-{n}" for n in (12, 13, 14)} | {f"clang++-{n}" for n in range(14, 20)}

faults = []


def check(right, what):
    if not right:
        faults.append(what)


def lists_of_dev():
    """The lists of packages in ./dev, by name."""
    text = (ROOT / "dev").read_text()
    found = {}
    for name, values in re.findall(r"^readonly (\w+)=\((.*?)\)$", text, flags=re.M | re.S):
        found[name] = re.sub(r'"\$\{(\w+)\[@\]\}"', lambda m: " ".join(found.get(m[1], [])), values).split()
    return found


def dev_knows(command, lists):
    words = command.split()[1:]
    text = (ROOT / "dev").read_text()
    if not re.search(rf"^  [^\n]*\b{re.escape(words[0])}\b[^\n]*\) ", text[text.rindex("case ${1-}"):], flags=re.M):
        return False
    return words[0] != "check" or set(words[1:]) <= set(lists["check_steps"])


def steps(job, lists):
    """The commands of a job, each of which must exist."""
    for step in job["steps"]:
        check(("run" in step) != ("uses" in step), f"a step is neither run nor uses: {step}")
        for line in re.sub(r"\\\n\s*", " ", step.get("run", "")).splitlines():
            for command in re.split(r"&&|;", line):
                words = command.split()
                if words and words[0] == "./dev":
                    check(dev_knows(command.strip(), lists), f"./dev does not know: {command.strip()}")
                elif words and words[0].startswith((".", "/")):
                    file = ROOT / words[0]
                    check(file.is_file() and file.stat().st_mode & 0o100, f"it runs {words[0]}, which cannot be run")
                elif words:
                    check(words[0] in ("apt-get", "dnf", "apk", "git"), f"it runs {words[0]}: is that in the image?")
                yield command.strip()


def packages_for(job, image):
    """What the steps for this image install."""
    found = set()
    for step in job["steps"]:
        condition = step.get("if", "")
        if condition and image.split(":")[0] not in condition:
            continue
        text = re.sub(r"\\\n", " ", step.get("run", ""))
        for line in text.splitlines() if "\n" in text.strip() else [text]:
            match = re.match(r"\s*(?:apt-get install|dnf install|apk add)(.*)", line)
            found |= set(w for w in (match.group(1).split() if match else []) if not w.startswith("-"))
    return found


def rows(job, lists):
    matrix = job["strategy"]["matrix"]["include"]
    check({r["image"].split(":")[0] for r in matrix} == {"debian", "ubuntu", "fedora", "alpine"}, "systems are missing")
    check(WANTED <= {r["compiler"] for r in matrix}, f"no row has {WANTED - {r['compiler'] for r in matrix}}")
    check({r["arch"] for r in matrix} == {"x86-64", "arm64"}, "both processors must be there")
    for row in matrix:
        image, compiler = row["image"], row["compiler"]
        where = f"{image}, {compiler}"
        check(compiler in COMPILERS.get(image, ()), f"{where}: the image has no such compiler")
        installed = packages_for(job, image)
        system = image.split(":")[0]
        if system in ("debian", "ubuntu"):
            # ./dev installs the rest. The compiler's package is named as it is, or clang-N.
            check({"git", "ca-certificates", "${{", "matrix.package"} & installed >= {"git", "ca-certificates"},
                  f"{where}: git is not installed")
            check(row.get("package") == compiler.replace("clang++", "clang"),
                  f"{where}: the package is {row.get('package')}")
            continue
        column = {"fedora": 0, "alpine": 1}[system]
        needed = {NAMES[p][column] for p in lists["build_packages"] if p in NAMES}
        needed |= {NAMES[p][column] for p in lists["server_packages"] if p in NAMES} | BESIDES[system]
        check(needed <= installed, f"{where}: these are not installed: {' '.join(sorted(needed - installed))}")


def apt_knows(rows_):
    """On the system that this is, what apt says; nothing if its lists are empty."""
    if not shutil.which("apt-cache"):
        return
    with open("/etc/os-release", encoding="utf-8") as file:
        here = dict(l.strip().replace('"', "").split("=", 1) for l in file if "=" in l)
    image = f"{here.get('ID')}:{here.get('VERSION_ID')}"
    wanted = {r["package"] for r in rows_ if r["image"] == image}
    said = subprocess.run(["apt-cache", "show", "--no-all-versions", "g++", *wanted], capture_output=True,
                          check=False, text=True).stdout
    known = set(re.findall(r"^Package: (.*)$", said, flags=re.M))
    check(not known or wanted <= known, f"{image} has no package {' '.join(wanted - known)}")


def faults_of(file):
    import yaml
    faults.clear()
    try:
        jobs = yaml.safe_load(file.read_text())["jobs"]
    except yaml.YAMLError as e:
        return [f"it is no YAML: {e}"]
    lists = lists_of_dev()
    missing = [p for p in lists["build_packages"] if p not in NAMES]
    check(not missing, f"packaging/workflow.py does not know what other systems call {missing}")
    for name, job in jobs.items():
        check("timeout-minutes" in job, f"{name} has no limit of time")
        commands = list(steps(job, lists))
        if name == "test":
            check(".ci/run" in commands, "it does not run .ci/run")
            options = job["container"].get("options", "") if isinstance(job["container"], dict) else ""
            # Without it setarch may not turn off address space randomization, which tsan needs.
            check("seccomp=unconfined" in options, "the container forbids personality()")
            check(job["env"].get("CXX") == "${{ matrix.compiler }}", "the compiler of a row is not used")
        if name == "packages":
            for command in ("./dev docs", "./dev check packages"):
                check(command in commands, f"{name} does not run {command}")
    rows(jobs["test"], lists)
    return list(faults)


def main():
    try:
        import yaml
    except ImportError:
        print("workflow: python3-yaml is not installed, so the workflow was not read")
        return 0
    found = faults_of(ROOT / sys.argv[1])
    if not found:
        apt_knows(yaml.safe_load((ROOT / sys.argv[1]).read_text())["jobs"]["test"]["strategy"]["matrix"]["include"])
        found = list(faults)
    for fault in found:
        print(f"workflow: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
