"""What a machine needs in order to run the check of crash states: its files, and the files before the workload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.remote.packing import Place, packed_file, packed_folder
from crashcheck.checker.remote.shipped_files import (
    FILES,
    ShippedFiles,
    moved_below,
    named_files,
    shipped,
    texts_of,
    why_unfit,
    with_libraries,
)

_FIRST, _STDOUT, _ADDRESSES, _PRELOAD = "first", "stdout", "addresses", "preload.so"


@dataclass(frozen=True, slots=True)
class Description(ShippedFiles):
    """How a machine makes a CheckSetup of the files. All paths in `setup` are relative to where they are unpacked."""

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
    command = setup.command
    texts = texts_of(command.command.words, command.command.text, setup.env.values())
    named = named_files(setup.folder, [command.program], texts)
    on_path = [Path(command.program)] if "/" not in (command.command.words or ("/",))[0] else []
    files = shipped(named, on_path, setup.environment(Path("pool")), places)
    entries = [*files.entries, *packed_folder(setup.first, _FIRST, places)]
    prints = setup.recorded_stdout is not None and setup.command.command.holds("stdout")
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
    description = Description(tuple(entries), files.own, files.programs, files.moved, there, limits)
    return Shipment(description, places)


def setup_below(description: Description, root: Path) -> CheckSetup:
    """The setup of a shipment that was unpacked into `root`."""
    setup = description.setup

    def below(path: Path | None) -> Path | None:
        return None if path is None else root / path

    def moved(text: str) -> str:
        return moved_below(description, root, text)

    command = setup.command.command
    command = replace(command, text=moved(command.text), words=tuple(map(moved, command.words)))
    return replace(
        setup,
        command=replace(setup.command, command=command, program=moved(setup.command.program)),
        folder=root / setup.folder,
        first=root / setup.first,
        work=root,
        env=with_libraries(root, {name: moved(value) for name, value in setup.env.items()}),
        recorded_stdout=below(setup.recorded_stdout),
        addresses=below(setup.addresses),
        preload=below(setup.preload),
    )


def unfit(description: Description, setup: CheckSetup, root: Path) -> str:
    """Why this machine cannot run the check as the one that sent it; empty if nothing is known to differ."""
    return why_unfit(description, setup.environment(Path("pool")), root)
