"""Files that programs need on another machine: by content hash those that are sent, and those it must have itself.

Programs, files that their commands name, and shared libraries that do not come with the system are sent; they are
unpacked under the paths that they have here, below one folder. Of the system's files, and of a program that is found on
PATH, such as Python, only the hash is sent: each machine must have its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crashcheck.checker.kept.keys import content_of_file
from crashcheck.checker.remote.libraries import NotListed, is_of_system, libraries
from crashcheck.checker.remote.packing import Packed, Place, packed_file

FILES, LIBRARIES = "files", "libraries"  # folders of what is unpacked
_WORDS = re.compile(r"[\s;&|<>()\"'`=,:]+")  # of a command, roughly


class Own(NamedTuple):
    """A file that a machine must have itself, with its hash."""

    path: str
    content: str


class Loaded(NamedTuple):
    """What a program must load: the names of its libraries, and their hashes. `sent`: whether `path` is of FILES."""

    path: str
    sent: bool
    libraries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ShippedFiles:
    """What a machine needs. `moved`: absolute paths in commands and values that are below FILES there."""

    entries: tuple[Packed, ...]
    own: tuple[Own, ...]
    programs: tuple[Loaded, ...]
    moved: tuple[str, ...]


def named_files(folder: Path, programs: Iterable[str], texts: Iterable[str]) -> list[Path]:
    """Programs, and files that commands or the values of variables name; absolute, each once."""
    named = dict.fromkeys(map(Path, programs))
    for text in texts:
        for word in filter(None, (text, *_WORDS.split(text))):
            path = Path(os.path.normpath(folder.absolute() / word))
            if path.is_file():
                named[path] = None
    return list(named)


def shipped(
    named: Sequence[Path], on_path: Collection[Path], env: Mapping[str, str], places: dict[bytes, Place]
) -> ShippedFiles:
    """What a machine needs in order to run programs and read files that are `named`.

    `on_path`: programs that were found on PATH. Where the pieces are is added to `places`.
    """
    own = [path for path in named if is_of_system(path) or path in on_path]
    sent = [path for path in named if path not in own]
    loaded = {path: _libraries(path, env) for path in named}
    added = {name: path for each in sent for name, path in loaded[each].items() if not is_of_system(path)}
    entries = [packed_file(path, f"{FILES}{path}", places) for path in sent]
    entries += [packed_file(path, f"{LIBRARIES}/{name}", places) for name, path in sorted(added.items())]
    return ShippedFiles(
        tuple(entries),
        tuple(Own(str(path), content_of_file(path)) for path in own),
        tuple(
            Loaded(str(path), path in sent, tuple((name, content_of_file(names[name])) for name in sorted(names)))
            for path, names in loaded.items()
            if names
        ),
        tuple(sorted(map(str, sent), key=len, reverse=True)),
    )


def moved_below(files: ShippedFiles, root: Path, text: str) -> str:
    """A word of a command, or a value, with the paths that its files have below `root`."""
    for path in files.moved:
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", lambda match: f"{root}/{FILES}{match[0]}", text)
    return text


def with_libraries(root: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Variables for programs that find the libraries below `root`."""
    if not (root / LIBRARIES).is_dir():
        return dict(env)
    known = env.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", ""))
    return {**env, "LD_LIBRARY_PATH": ":".join(filter(None, [str(root / LIBRARIES), known]))}


def why_unfit(files: ShippedFiles, env: Mapping[str, str], root: Path) -> str:
    """Why this machine cannot run the programs as the one that sent them; empty if nothing is known to differ."""
    for path, content in files.own:
        if (found := content_of_file(Path(path))) != content:
            return f"{path} {'is missing' if found == 'none' else 'is another file'} there"
    for program, sent, wanted in files.programs:
        try:
            found_there = libraries(root / f"{FILES}{program}" if sent else Path(program), env)
        except NotListed as error:
            return str(error)
        for name, content in wanted:
            if name not in found_there:
                return f"the library {name} of {program} is missing there"
            if content_of_file(found_there[name]) != content:
                return f"the library {name} of {program} is another one there ({found_there[name]})"
    return ""


def _libraries(program: Path, env: Mapping[str, str]) -> dict[str, Path]:
    """Those that are known: what cannot be listed here is not compared."""
    try:
        return libraries(program, env)
    except NotListed:
        return {}


def texts_of(words: Sequence[str], text: str, values: Iterable[str]) -> Iterator[str]:
    """What may name files: the words of a command, or the text of one that a shell runs, and values of variables."""
    yield from words or (text,)
    yield from values
