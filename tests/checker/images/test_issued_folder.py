"""What the folder held after each call of random programs, against the images of everything issued by then."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.persistence import build
from crashcheck.checker.images.folder_content import FolderContent
from crashcheck.checker.images.issued_folder import IssuedFolder
from crashcheck.checker.states.space import StateSpace
from support.folders import write_folder
from support.tracing import CallsBuilder

FIRST = {"a": bytes(range(200)), "d": None, "d/b": b"old " * 2000, "d/e": None, "d/e/c": b"c", "empty": None}


class Calls:
    """Calls that a kernel would let succeed."""

    def __init__(self, t: CallsBuilder, seed: int) -> None:
        self.t = t
        self.choose = random.Random(seed)
        self.sizes = {t.files[path]: len(data) for path, data in FIRST.items() if data is not None}
        for number in range(14):
            self.call(number)

    def call(self, number: int) -> None:
        files = sorted(path for path, inode in self.t.files.items() if inode in self.sizes)
        folders = sorted(path for path, inode in self.t.files.items() if inode not in self.sizes and path)
        path = self.choose.choice(files)
        new = "/".join(filter(None, (self.choose.choice(["", *folders]), f"n{number}")))
        match self.choose.choice(["open", "write", "write", "cut", "move", "over", "folder", "exchange", "link", "rm"]):
            case "open":
                self.t.open(new)
                self.sizes[self.t.files[new]] = 0
            case "write":
                size = self.sizes[self.t.files[path]]
                low, data = self.choose.randint(0, size + 10), bytes([number + 1]) * self.choose.randint(1, 5000)
                self.t.write(path, low, data)
                self.sizes[self.t.files[path]] = max(size, low + len(data))
            case "cut":
                self.sizes[self.t.files[path]] = size = self.choose.randint(0, 9000)
                self.t.truncate(path, size)
            case "move":
                self.t.move(path, new)
            case "over" if len(files) > 1:
                files.remove(path)
                self.t.move(self.choose.choice(files), path)
            case "folder":
                folder = self.choose.choice(folders)
                if not new.startswith(f"{folder}/"):
                    self.t.move(folder, new)
            case "exchange":
                self.t.exchange(path, self.choose.choice(files))
            case "link":
                self.t.link(path, new)
            case "rm" if len(files) > 1:
                self.t.remove(path)


@pytest.mark.parametrize("model", ["ext4", "posix"])
def test_paths_and_bytes_are_those_of_the_image_of_all_that_was_issued(model: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    write_folder(first, FIRST)
    for seed in range(12):
        t = CallsBuilder(
            tmp_path / "t.cct", {f"{path}/" if data is None else path: data for path, data in FIRST.items()}
        )
        Calls(t, seed)
        graph = build(t.trace(), model)
        content = FolderContent(StateSpace(graph), first)
        counted = [number for number in graph.trace.files if number % 5]
        folder = IssuedFolder(graph, first, counted)
        known = dict(folder.paths)
        for event in range(len(graph.trace.events)):
            changed = folder.after(event)
            assert changed == {path for path in {*known, *folder.paths} if known.get(path) != folder.paths.get(path)}
            known = dict(folder.paths)
            assert known == content.paths_issued(event + 1)
            for inode in counted:
                there = inode in known.values()
                expected = content.bytes_issued(event + 1, inode).counts() if there else np.zeros(256, dtype=np.int64)
                assert np.array_equal(folder.counts_of(inode), expected), (seed, event)
