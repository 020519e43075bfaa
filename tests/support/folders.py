"""What folders may survive a crash: small programs of system calls, and every image that a model allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

from crashcheck.analyzer.persistence import Options, build
from crashcheck.checker.images.folder_content import FolderContent
from crashcheck.checker.images.image_folder import FOLDER, LINK, SYMLINK
from crashcheck.checker.images.piecewise import ImagePatch
from crashcheck.checker.states.by_deviation import max_deviation, states_of_deviation
from crashcheck.checker.states.space import StateSpace
from support.tracing import CallsBuilder

Folder = Mapping[str, bytes | None]  # contents by path; None of a directory
Files = dict[str, bytearray | None]  # the names of one file have one array
Program = Callable[[CallsBuilder], object]


class Recorded:
    """A program of system calls, its state space under a model, and the folder of every state."""

    def __init__(
        self,
        tmp: Path,
        program: Program,
        first: Folder,
        model: str,
        options: Options | None = None,
        *,
        most: int | None = None,
    ) -> None:
        """`most`: states that are listed, those first in which least differs from what was done; None: all."""
        folder = tmp / "first"
        write_folder(folder, first)
        builder = CallsBuilder(tmp / "t.cct", {f"{p}/" if d is None else p: d for p, d in first.items()})
        program(builder)
        self.trace = builder.trace()
        self.graph = build(self.trace, model, options)
        self.space = StateSpace(self.graph)
        self.content = FolderContent(self.space, folder)
        self.first = dict(first)
        deviations = range(max_deviation(self.space) + 1)
        self.states = list(islice((s for d in deviations for s in states_of_deviation(self.space, d)), most))

    def folders(self, since: int = 0) -> list[dict[str, bytes | None]]:
        """Of all states, or of those with at least so many acknowledgements."""
        return [self.folder(s) for s in self.states if self.space.points[s.point].outputs >= since]

    def folder(self, state) -> dict[str, bytes | None]:  # type: ignore[no-untyped-def]
        return {path: None if data is None else bytes(data) for path, data in self._files(state).items()}

    def links(self, state) -> set[tuple[str, ...]]:  # type: ignore[no-untyped-def]
        """Paths that are names of one file."""
        names: dict[int, list[str]] = {}
        for path, data in self._files(state).items():
            if data is not None:
                names.setdefault(id(data), []).append(path)
        return {tuple(sorted(group)) for group in names.values() if len(group) > 1}

    def _files(self, state) -> Files:  # type: ignore[no-untyped-def]
        out: Files = {path: None if data is None else bytearray(data) for path, data in self.first.items()}
        apply(out, self.content.durable(None, state.point))
        apply(out, self.content.patches(state))
        return out


def apply(folder: Files, patches: ImagePatch) -> None:
    for patch in patches:
        if not patch.exists:
            folder.pop(patch.path, None)
        elif patch.size == FOLDER:
            folder[patch.path] = None
        elif patch.size == SYMLINK:
            folder[patch.path] = bytearray(b"-> " + patch.writes[0][1])
        elif patch.size == LINK:
            folder[patch.path] = folder[patch.writes[0][1].decode()]
        else:
            data = folder.get(patch.path)
            if data is None:
                data = folder[patch.path] = bytearray()
            del data[patch.size :]
            data.extend(bytes(patch.size - len(data)))
            for low, written in patch.writes:
                data[low : low + len(written)] = written


def write_folder(folder: Path, content: Folder) -> None:
    folder.mkdir(parents=True)
    for path, data in content.items():
        target = folder / path
        if data is None:
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
