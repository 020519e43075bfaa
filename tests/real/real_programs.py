"""Other people's programs: fetched as Debian source packages, built outside the checkout, laid out to be run.

    python tests/real/real_programs.py lmdb /tmp/lmdb     lays out a folder to run `crashcheck run -c ...` in

What is fetched and built is kept in $CRASHCHECK_REAL_CACHE, else in $XDG_CACHE_HOME/crashcheck/real. Nothing on the
machine is changed: apt runs with a configuration, lists and a cache of its own, so that root is not needed either.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent


def run_with_check(folder: Path, setup: str, workload: str, check: str, model: str, states: int) -> dict[str, Any]:
    """The report of a run in `folder` over shell commands whose system calls are recorded."""

    def shell(text: str) -> str:
        return json.dumps(["/bin/sh", "-c", text])

    (folder / "crashcheck.toml").write_text(
        f"""[setup]
command = {shell(setup)}
[workload]
command = {shell(workload)}
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = {shell(check)}
[model]
name = "{model}"
[budget]
states = {states}
"""
    )
    run = [sys.executable, "-m", "crashcheck", "run", "--format", "json"]
    ran = subprocess.run(run, cwd=folder, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


class Unavailable(RuntimeError):
    """A program could not be fetched or built; the message names the step that failed and holds its last output."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The compilers of one build. `stamp` changes when what they produce may change."""

    label: str
    cc: str
    cxx: str
    stamp: str


@dataclass(frozen=True, slots=True)
class Program:
    """How a package is built, and what our workload and check need to link with it."""

    package: str
    build: tuple[tuple[str, ...], ...]  # {cc}, {cxx}, {jobs} and {here}, this folder, are filled in
    result: str  # built last: there means that the build is complete
    language: str  # of our workload and check: "c" or "c++"
    include: str = "."  # relative to the package
    libraries: tuple[str, ...] = ()


PROGRAMS = {
    "lmdb": Program(
        "lmdb",
        (("make", "-C", "libraries/liblmdb", "-j{jobs}", "liblmdb.a", "CC={cc}"),),
        "libraries/liblmdb/liblmdb.a",
        "c",
        "libraries/liblmdb",
    ),
    "kyotocabinet": Program(
        "kyotocabinet",
        (
            # Its atomic counters pass an int for a pointer, which only g++ accepts.
            ("./configure", "--disable-shared", "--disable-zlib", "--disable-atomic", "CC={cc}", "CXX={cxx}"),
            ("make", "-j{jobs}", "libkyotocabinet.a"),
        ),
        "libkyotocabinet.a",
        "c++",
    ),
    "tkrzw": Program(
        "tkrzw",
        (
            ("./configure", "--enable-static", "--disable-shared", "CC={cc}", "CXX={cxx}"),
            ("make", "-j{jobs}", "libtkrzw.a"),
        ),
        "libtkrzw.a",
        "c++",
        libraries=("-latomic",),
    ),
    "leveldb": Program(
        "leveldb",
        (
            (
                *("cmake", "-S", ".", "-B", "out", "-DCMAKE_BUILD_TYPE=Release"),
                *("-DCMAKE_C_COMPILER={cc}", "-DCMAKE_CXX_COMPILER={cxx}"),
                *("-DLEVELDB_BUILD_TESTS=OFF", "-DLEVELDB_BUILD_BENCHMARKS=OFF"),
                *("-DHAVE_SNAPPY=OFF", "-DHAVE_TCMALLOC=OFF", "-DHAVE_CRC32C=OFF"),
            ),
            ("cmake", "--build", "out", "--parallel", "{jobs}"),
        ),
        "out/libleveldb.a",
        "c++",
        "include",
    ),
    "tdb": Program(
        "samba",  # which holds tdb as its authors publish it; the package tdb has the same files
        (
            (
                *("sh", "-ec"),
                "for file in lib/tdb/common/*.c; do {cc} -c -g -O2 -w -I{here}/tdb -Ilib/replace -Ilib/tdb/include "
                "$file; done; ar rcs libtdb.a *.o",
            ),
        ),
        "libtdb.a",
        "c",
        "lib/tdb/include",
    ),
    # Built by their readers: Debian's archive does not always hold the source. See README.md.
    "qdbm": Program("", (), "libqdbm.a", "c"),
    "tokyocabinet": Program("", (), "libtokyocabinet.a", "c", libraries=("-lm",)),
}


def cache() -> Path:
    chosen = os.environ.get("CRASHCHECK_REAL_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else base / "crashcheck" / "real"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def plain() -> Tools:
    cc, cxx = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
    return Tools("plain", cc, cxx, f"{cc} {cxx}")


def clang() -> Tools:
    """The newest clang here, optimising as crashcheck's does: what the wrapper's build time is measured against."""
    for version in ("", "-19", "-18", "-17", "-16", "-15", "-14"):
        if shutil.which(f"clang{version}") and shutil.which(f"clang++{version}"):
            return Tools("clang", f"clang{version}", f"clang++{version}", version)
    raise Unavailable("There is no clang and clang++ on PATH.")


def crashcheck() -> Tools:
    """The wrappers of this checkout. Their stamp is the instrumenter's and the runtime's source."""
    digest = hashlib.sha256()
    for folder in ("analyzer/compile", "runtime"):
        for file in sorted((CHECKOUT / folder).rglob("*")):
            if file.suffix in (".py", ".c", ".h", ".def", ".S", ".map"):
                digest.update(file.read_bytes())
    return Tools("crashcheck", command("crashcheck-cc"), command("crashcheck-c++"), digest.hexdigest()[:16])


_ENTRY_POINTS = {
    "crashcheck": "crashcheck.cli:main",
    "crashcheck-cc": "crashcheck.cli.cc:main_c",
    "crashcheck-c++": "crashcheck.cli.cc:main_cxx",
}


def command(name: str) -> str:
    """One of crashcheck's commands: the installed one of this Python, else a script that runs the checkout."""
    installed = Path(sys.executable).parent / name
    if installed.exists():
        return str(installed)
    module, function = _ENTRY_POINTS[name].split(":")
    script = cache() / "bin" / name
    script.parent.mkdir(exist_ok=True)
    text = (
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(CHECKOUT / 'src')!r})\n"
        f"from {module} import {function}\nsys.exit({function}())\n"
    )
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        partial = script.with_name(f"{name}.{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        partial.replace(script)
    return str(script)


def build(name: str, tools: Tools, jobs: int | None = None) -> Path:
    """The package's tree, built with `tools`. Raises Unavailable."""
    program = PROGRAMS[name]
    if not program.package:
        return given(name)
    origin = source(program.package)
    tree = cache() / f"{origin.name}-{tools.label}"
    stamp = tree / ".crashcheck-stamp"
    with lock(tree.name):
        if stamp.exists() and stamp.read_text() == tools.stamp and (tree / program.result).exists():
            return tree
        copy_source(origin, tree)
        for step in build_steps(name, tools, jobs):
            run(step, tree, f"building {origin.name} with {tools.cc}")
        stamp.write_text(tools.stamp)
    return tree


def given(name: str) -> Path:
    """The folder with a library and its headers that $CRASHCHECK_REAL_<NAME> names. Raises Unavailable."""
    variable = f"CRASHCHECK_REAL_{name.upper()}"
    folder = Path(os.environ.get(variable, ""))
    if not os.environ.get(variable) or not (folder / PROGRAMS[name].result).exists():
        raise Unavailable(f"{variable} names no folder with {PROGRAMS[name].result} (tests/real/README.md).")
    return folder.absolute()


def build_steps(name: str, tools: Tools, jobs: int | None = None) -> list[list[str]]:
    values = {"cc": tools.cc, "cxx": tools.cxx, "jobs": str(jobs or os.cpu_count() or 1), "here": str(HERE)}
    return [[word.format(**values) for word in step] for step in PROGRAMS[name].build]


def copy_source(origin: Path, tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(origin, tree, symlinks=True)


def link(name: str, tools: Tools, tree: Path, role: str, output: Path) -> None:
    """Compiles the program of this role and links it with the library in `tree`, both by `tools`.

    It is tests/real/<name>/<role>, or tests/real/<role>.c for a store, which <name>/store.c implements.
    """
    program = PROGRAMS[name]
    suffix, compiler, standard = ("c", tools.cc, "gnu11") if program.language == "c" else ("cc", tools.cxx, "gnu++17")
    store = HERE / name / "store.c"
    sources = [HERE / f"{role}.c", store] if store.exists() else [HERE / name / f"{role}.{suffix}"]
    run(
        [
            *(compiler, f"-std={standard}", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"),
            *(f"-I{CHECKOUT / 'runtime' / 'include'}", f"-I{HERE}", "-isystem", str(tree / program.include)),
            *(*map(str, sources), str(tree / program.result), *program.libraries, "-o", str(output)),
        ],
        output.parent,
        f"building {name}'s {role}",
    )


def lay_out(name: str, folder: Path, workload: Tools, check: Tools) -> Path:
    """Puts `workload`, `check` and the configurations of tests/real/<name>/ into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    link(name, workload, build(name, workload), "workload", folder / "workload")
    link(name, check, build(name, check), "check", folder / "check")
    for file in (HERE / name).glob("*.toml"):
        shutil.copy(file, folder)
    return folder


def source(package: str) -> Path:
    """The unpacked source of `package` in the version of this machine's distribution. Raises Unavailable."""
    sources = cache() / "sources"
    with lock("apt"):
        found = sorted(sources.glob(f"{package}-[0-9]*/debian"))
        if found:
            return found[-1].parent
        for tool, owner in (("apt-get", "apt"), ("dpkg-source", "dpkg-dev")):
            if not shutil.which(tool):
                raise Unavailable(f"{tool} is missing (Debian and Ubuntu: the package {owner}).")
        # Unpacked beside the final place, so that an interrupted run leaves no half of a package there.
        partial = cache() / "unpacking"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        environment = _apt_environment()
        if not list((cache() / "apt/lists").glob("*Sources*")):
            run(["apt-get", "update"], partial, "fetching the lists of source packages", environment)
        run(["apt-get", "source", "--only-source", package], partial, f"fetching {package}", environment)
        tree = next(partial.glob(f"{package}-[0-9]*/debian")).parent
        sources.mkdir(exist_ok=True)
        tree.rename(sources / tree.name)
        shutil.rmtree(partial)
        return sources / tree.name


def _apt_environment() -> dict[str, str]:
    """apt with source packages enabled and nothing shared with the machine's own apt but keys and proxies."""
    apt = cache() / "apt"
    for folder in ("lists/partial", "archives/partial", "empty"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "crashcheck.sources").write_text(source_entries(), encoding="utf-8")
    # Parts of /etc/apt are read before "main": the hooks in them (to refresh desktops' caches) are cleared there.
    included = '#include "/etc/apt/apt.conf";\n' if Path("/etc/apt/apt.conf").exists() else ""
    (apt / "main.conf").write_text(
        f"{included}#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n",
        encoding="utf-8",
    )
    (apt / "apt.conf").write_text(
        f'Dir::Etc::main "{apt}/main.conf";\nDir::Etc::sourcelist "{apt}/crashcheck.sources";\n'
        f'Dir::Etc::sourceparts "{apt}/empty";\nDir::Etc::preferencesparts "{apt}/empty";\n'
        f'Dir::State::lists "{apt}/lists";\nDir::Cache "{apt}";\nDir::Log "{apt}";\nAPT::Sandbox::User "";\n',
        encoding="utf-8",
    )
    return {**os.environ, "APT_CONFIG": str(apt / "apt.conf"), "LC_ALL": "C.UTF-8"}


def source_entries(etc: Path = Path("/etc")) -> str:
    """This distribution's own package sources, read from /etc/apt, as sources of source packages (deb822)."""
    release = (etc / "os-release").read_text(encoding="utf-8")
    match = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    if not match:
        raise Unavailable("/etc/os-release names no VERSION_CODENAME: only Debian and Ubuntu have source packages.")
    suite = re.compile(rf"{match[1]}(-updates|-security)?$")
    entries = []
    for fields in [*_deb822(etc), *_one_line(etc)]:
        suites = [word for word in fields["suites"].split() if suite.match(word)]
        components = [word for word in fields.get("components", "").split() if word in ("main", "universe")]
        if "deb" in fields["types"].split() and suites and components:
            signed = f"Signed-By: {fields['signed-by']}\n" if "signed-by" in fields else ""
            entries.append(
                f"Types: deb-src\nURIs: {fields['uris']}\nSuites: {' '.join(suites)}\n"
                f"Components: {' '.join(components)}\n{signed}"
            )
    if not entries:
        raise Unavailable(f"No package source of {match[1]} in /etc/apt: nothing to fetch source packages from.")
    return "\n".join(dict.fromkeys(entries))


def _deb822(etc: Path) -> Iterator[dict[str, str]]:
    for file in sorted((etc / "apt/sources.list.d").glob("*.sources")):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
            fields = {
                key.lower(): value.strip()
                for key, value in re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", stanza, re.MULTILINE)
            }
            if {"types", "uris", "suites"} <= fields.keys() and fields.get("enabled", "yes") != "no":
                yield fields


def _one_line(etc: Path) -> Iterator[dict[str, str]]:
    for file in [etc / "apt/sources.list", *sorted((etc / "apt/sources.list.d").glob("*.list"))]:
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]*)", line)
            if match:
                fields = {"types": "deb", "uris": match[2], "suites": match[3], "components": match[4]}
                signed = re.search(r"signed-by=(\S+)", match[1] or "")
                yield {**fields, "signed-by": signed[1]} if signed else fields


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    with open(cache() / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(words: list[str], folder: Path, purpose: str, environment: dict[str, str] | None = None) -> None:
    result = subprocess.run(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if result.returncode != 0:
        output = result.stdout.decode(errors="replace")[-4000:]
        raise Unavailable(f"{purpose}: `{' '.join(words)}` ended with {result.returncode}:\n{output}")


def main() -> int:
    if len(sys.argv) != 3 or not (HERE / sys.argv[1]).is_dir():
        print("usage: real_programs.py lmdb|tkrzw|kyotocabinet|tdb|qdbm|tokyocabinet FOLDER", file=sys.stderr)
        return 2
    folder = lay_out(sys.argv[1], Path(sys.argv[2]).absolute(), crashcheck(), plain())
    for file in sorted(folder.glob("*.toml")):
        print(f"{command('crashcheck')} run -c {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
