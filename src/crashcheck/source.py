"""The user's source files: the repository that holds them, how a report names them, and the text of their lines."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# Longer files are machine-made; the line of one is not worth the memory.
_MOST_BYTES = 32 << 20


# Where systems and compilers keep headers, libstdc++'s and clang's own among them. What is included from elsewhere
# (a structure in a header of its own, a .c file of another folder) is under test as much as what includes it.
_INSTALLED = re.compile(r"^/(usr/(local/)?(include|lib\w*)|opt|nix/store)/|/(lib/clang|include/c\+\+|ziglang/lib)/")


def is_installed(path: str) -> bool:
    """Whether an absolute path is in a folder of headers that a system or a compiler installed."""
    return _INSTALLED.search(path) is not None


@dataclass(frozen=True, slots=True)
class SourceTree:
    """The project under test: the folder of its crashcheck.toml, in the repository that holds it."""

    folder: Path

    def absolute(self, path: str | Path) -> Path:
        """`path` as a compiler wrote it, made absolute and free of `..` and of links to folders."""
        joined = self.folder / _without_go_module(path, self.folder)
        return (
            Path(os.path.realpath(joined.parent)) / joined.name
            if joined.name not in ("", "..")
            else Path(os.path.realpath(joined))
        )

    def relative(self, path: str | Path) -> str:
        """How reports name `path`: relative to the folder, with `/` (and `..`), where it is in the repository; else, or
        where it is installed there, absolute."""
        if not str(path):
            return ""
        absolute = self.absolute(path)
        here = repository_of(self.folder)
        folder = here.root / here.prefix
        if absolute.is_relative_to(folder):
            return absolute.relative_to(folder).as_posix()
        if absolute.is_relative_to(here.root) and not is_installed(absolute.as_posix()):
            return os.path.relpath(absolute, folder)
        return absolute.as_posix()


def _without_go_module(path: str | Path, folder: Path) -> str | Path:
    """`path`, which `go build -trimpath` begins with the name of the module: relative to `folder`, if that is in it."""
    name = str(path)
    if not name.endswith((".go", ".s")) or name.startswith(("/", ".")) or (folder / path).exists():
        return path
    here = Path(os.path.realpath(folder))
    for root in (here, *here.parents):
        for line in source_lines(root / "go.mod"):
            if line.startswith("module "):
                module = line[7:].partition("//")[0].strip().strip('"') + "/"
                return os.path.relpath(root / name[len(module) :], here) if name.startswith(module) else path
    return path


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository's root folder, and the project's folder below it ("" if they are the same; else with "/")."""

    root: Path
    prefix: str = ""

    def name(self, file: str) -> str:
        """`file`, as a finding names it, relative to the root, with "/" and links resolved; "" if it is outside.

        A link that leads out of the repository, or a file that does not exist, keeps the name that it has.
        """
        if not file or "\0" in file:
            return ""
        if file.startswith("/"):
            root = self.root.as_posix().rstrip("/") + "/"
            inside = posixpath.normpath(file)
            if not inside.startswith(root):
                return ""
            inside = inside[len(root) :]
        else:
            inside = posixpath.normpath(posixpath.join(self.prefix, file))
            if inside in (".", "..") or inside.startswith("../"):
                return ""
        try:
            resolved = os.path.realpath(self.root / inside)
            return Path(resolved).relative_to(self.root).as_posix() if resolved != str(self.root) else ""
        except (OSError, ValueError):
            return inside


def repository_of(folder: Path) -> Repository:
    """The repository that holds `folder`: the nearest folder above it with a `.git`, else `folder` itself."""
    here = Path(os.path.realpath(folder))
    for root in (here, *here.parents):
        if os.path.lexists(root / ".git"):
            prefix = here.relative_to(root).as_posix()
            return Repository(root, "" if prefix == "." else prefix)
    return Repository(here)


def spoken(path: str) -> str:
    """How a sentence names a file that `SourceTree.relative` named: outside the project by its last component."""
    return path.rsplit("/", 1)[-1] if path.startswith("/") else path


def spoken_line(path: str, line: int) -> str:
    """How a sentence names a line: "save.c:2"; of a program given by an option or read from stdin, "line 2 of -c"."""
    given = path.startswith("<-") or path == "<stdin>"
    return f"line {line} of {path[1:-1]}" if given else f"{spoken(path)}:{line}"


def source_line(path: str | Path, line: int) -> str:
    """Line `line` (1-based) of `path` without surrounding space; "" if there is no such file or line."""
    lines = source_lines(path)
    return lines[line - 1].strip() if 1 <= line <= len(lines) else ""


def source_lines(path: str | Path) -> tuple[str, ...]:
    """All lines of `path`, decoded as UTF-8 with replacement; () if it cannot be read.

    A debug location may name a file that is gone or never was one ("<built-in>"): that is not an error.
    """
    return _read(os.fspath(path))


@lru_cache(maxsize=256)
def _read(path: str) -> tuple[str, ...]:
    try:
        file = Path(path)
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return ()
        # Only "\n" ends a line for a compiler; str.splitlines also splits at form feeds and others.
        text = file.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return ()
    return tuple(text.split("\n"))
