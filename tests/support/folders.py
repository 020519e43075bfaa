"""What folders may survive a crash: small programs of system calls, and every image that a model allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from crashcheck.analyzer.persistence import Options, build
from crashcheck.checker.images.folder_content import FolderContent
from crashcheck.checker.images.image_folder import FOLDER, SYMLINK
from crashcheck.checker.images.piecewise import ImagePatch
from crashcheck.checker.states.by_deviation import max_deviation, states_of_deviation
from crashcheck.checker.states.space import StateSpace
from support.tracing import CallsBuilder

Folder = Mapping[str, bytes | None]  # contents by path; None of a directory
Program = Callable[[CallsBuilder], object]


class Recorded:
    """A program of system calls, its state space under a model, and the folder of every state."""

    def __init__(self, tmp: Path, program: Program, first: Folder, model: str, options: Options | None = None) -> None:
        folder = tmp / "first"
        write_folder(folder, first)
        builder = CallsBuilder(tmp / "t.cct", {f"{p}/" if d is None else p: d for p, d in first.items()})
        program(builder)
        self.trace = builder.trace()
        self.graph = build(self.trace, model, options)
        self.space = StateSpace(self.graph)
        self.content = FolderContent(self.space, folder)
        self.first = dict(first)
        self.states = [s for d in range(max_deviation(self.space) + 1) for s in states_of_deviation(self.space, d)]

    def folders(self, since: int = 0) -> list[dict[str, bytes | None]]:
        """Of all states, or of those with at least so many acknowledgements."""
        return [self.folder(s) for s in self.states if self.space.points[s.point].outputs >= since]

    def folder(self, state) -> dict[str, bytes | None]:  # type: ignore[no-untyped-def]
        out = dict(self.first)
        apply(out, self.content.durable(None, state.point))
        apply(out, self.content.patches(state))
        return out


def apply(folder: dict[str, bytes | None], patches: ImagePatch) -> None:
    for patch in patches:
        if not patch.exists:
            folder.pop(patch.path, None)
        elif patch.size == FOLDER:
            folder[patch.path] = None
        elif patch.size == SYMLINK:
            folder[patch.path] = b"-> " + patch.writes[0][1]
        else:
            data = bytearray((folder.get(patch.path) or b"")[: patch.size].ljust(patch.size, b"\0"))
            for low, written in patch.writes:
                data[low : low + len(written)] = written
            folder[patch.path] = bytes(data)


def write_folder(folder: Path, content: Folder) -> None:
    folder.mkdir(parents=True)
    for path, data in content.items():
        target = folder / path
        if data is None:
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
