"""What a machine needs in order to run the check: files by content hash, and files that it must have itself.

The check's program, files that its command names, and shared libraries that do not come with the system are sent;
they are unpacked under the paths that they have here, below one folder. Of the system's files, and of a program that is
found on PATH, such as Python, only the hash is sent: each machine must have its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.kept.keys import content_of_file
from crashcheck.checker.remote.libraries import NotListed, is_of_system, libraries
from crashcheck.checker.remote.packing import Packed, Place, packed_file, packed_folder
from crashcheck.command import Command

FILES, LIBRARIES = "files", "libraries"  # folders of a shipment that is unpacked
_FIRST, _STDOUT, _ADDRESSES, _PRELOAD = "first", "stdout", "addresses", "preload.so"
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
class Description:
    """How a machine makes a CheckSetup of the files. All paths in `setup` are relative to where they are unpacked."""

    entries: tuple[Packed, ...]
    own: tuple[Own, ...]
    programs: tuple[Loaded, ...]
    moved: tuple[str, ...]  # absolute paths in commands and values that are below FILES there
    setup: CheckSetup
    limits: Limits


@dataclass(frozen=True, slots=True)
class Shipment:
    """A description, and where this machine has the pieces."""

    description: Description
    places: dict[bytes, Place]


def shipment_of(setup: CheckSetup, limits: Limits) -> Shipment:
    """Everything that the check needs, as far as that can be known: what else it opens is not sent."""
    places: dict[bytes, Place] = {}
    named = _named_files(setup)
    found = Path(setup.command.program) if "/" not in (setup.command.command.words or ("/",))[0] else None
    own = [path for path in named if is_of_system(path) or path == found]
    sent = [path for path in named if path not in own]
    env = setup.environment(Path("pool"))
    loaded = {path: _libraries(path, env) for path in named}
    added = {name: path for each in sent for name, path in loaded[each].items() if not is_of_system(path)}
    entries = [packed_file(path, f"{FILES}{path}", places) for path in sent]
    entries += [packed_file(path, f"{LIBRARIES}/{name}", places) for name, path in sorted(added.items())]
    entries += packed_folder(setup.first, _FIRST, places)
    prints = setup.recorded_stdout is not None and "{stdout}" in setup.command.command.text
    others = ((_STDOUT, setup.recorded_stdout if prints else None), (_ADDRESSES, setup.addresses))
    given = {name: path for name, path in (*others, (_PRELOAD, setup.preload)) if path is not None and path.is_file()}
    entries += [packed_file(path, name, places) for name, path in given.items()]
    there = replace(
        setup,
        folder=Path(FILES + str(setup.folder.absolute())),
        first=Path(_FIRST),
        work=Path(),
        recorded_stdout=Path(_STDOUT) if _STDOUT in given else None,
        addresses=Path(_ADDRESSES) if _ADDRESSES in given else None,
        preload=Path(_PRELOAD) if _PRELOAD in given else None,
    )
    description = Description(
        tuple(entries),
        tuple(Own(str(path), content_of_file(path)) for path in own),
        tuple(
            Loaded(str(path), path in sent, tuple((name, content_of_file(names[name])) for name in sorted(names)))
            for path, names in loaded.items()
            if names
        ),
        tuple(sorted(map(str, sent), key=len, reverse=True)),
        there,
        limits,
    )
    return Shipment(description, places)


def setup_below(description: Description, root: Path) -> CheckSetup:
    """The setup of a shipment that was unpacked into `root`."""
    setup = description.setup

    def below(path: Path | None) -> Path | None:
        return None if path is None else root / path

    def moved(text: str) -> str:
        for path in description.moved:
            text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", lambda match: f"{root}/{FILES}{match[0]}", text)
        return text

    command = setup.command.command
    command = Command(moved(command.text), tuple(map(moved, command.words)))
    env = {name: moved(value) for name, value in setup.env.items()}
    if (root / LIBRARIES).is_dir():
        known = env.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", ""))
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(root / LIBRARIES), known]))
    return replace(
        setup,
        command=replace(setup.command, command=command, program=moved(setup.command.program)),
        folder=root / setup.folder,
        first=root / setup.first,
        work=root,
        env=env,
        recorded_stdout=below(setup.recorded_stdout),
        addresses=below(setup.addresses),
        preload=below(setup.preload),
    )


def unfit(description: Description, setup: CheckSetup, root: Path) -> str:
    """Why this machine cannot run the check as the one that sent it; empty if nothing is known to differ."""
    for path, content in description.own:
        if (found := content_of_file(Path(path))) != content:
            return f"{path} {'is missing' if found == 'none' else 'is another file'} there"
    env = setup.environment(Path("pool"))
    for program, sent, wanted in description.programs:
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


def _named_files(setup: CheckSetup) -> list[Path]:
    """The check's program, and files that its command or the values of its variables name; absolute, each once."""
    command = setup.command
    named = {Path(command.program): None}
    for text in _texts(command.command, setup.env.values()):
        path = Path(os.path.normpath(setup.folder.absolute() / text))
        if path.is_file():
            named[path] = None
    return list(named)


def _texts(command: Command, values: Iterable[str]) -> Iterator[str]:
    for text in (*(command.words or (command.text,)), *values):
        yield from filter(None, (text, *_WORDS.split(text)))
