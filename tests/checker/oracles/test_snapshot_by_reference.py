"""The oracle `snapshot` against its rules in plain Python, on generated sequences of calls."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.results import Outcome
from crashcheck.checker.subject import Subject
from support.examples_tried import seeds_in_parts
from support.folders import Recorded
from support.reference_snapshot import ReferenceSnapshot
from support.tracing import CallsBuilder

FIRST = {"a": b"setting=1\n", "b": bytes(range(1, 200)), "d": None, "d/c": b"x" * 70 + b"1\n", "d/e": b""}
STATES = 200  # of a sequence, spread evenly over those listed
MOST = 30_000  # listed: a few sequences have millions
STEPS = ("create", "copy", "overwrite", "append", "cut", "rewrite", "sync", "sync folder", "sync all")
NAMES = ("move", "move", "replace", "copy and remove", "link", "remove", "mkdir", "recreate", "recreate")
SCRATCH = ("copy and rewrite", "work on scratch")


class Sequence:
    """Makes random calls, and knows the names and contents to make sensible ones."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.made = 0

    def __call__(self, t: CallsBuilder) -> None:
        self.t = t
        self.held = {path: bytearray(data) for path, data in FIRST.items() if data is not None}
        self.folders = ["", "d"]
        for _ in range(self.chance.randint(2, 6)):
            getattr(self, self.chance.choice(STEPS + NAMES + SCRATCH).replace(" ", "_"))()

    def some(self) -> str:
        if not self.held:
            self.create()
        return self.chance.choice(sorted(self.held))

    def fresh(self) -> str:
        self.made += 1
        return f"{self.chance.choice(self.folders)}/n{self.made}".lstrip("/")

    def data(self) -> bytes:
        return self.chance.choice([b"2\n", self.chance.randbytes(20), self.chance.randbytes(90)])

    def write(self, path: str, offset: int, data: bytes) -> None:
        held = self.held[path]
        held.extend(bytes(max(0, offset - len(held))))
        held[offset : offset + len(data)] = data
        if data:
            self.t.write(path, offset, data)

    def resize(self, path: str, size: int) -> None:
        held = self.held[path]
        held.extend(bytes(max(0, size - len(held))))
        del held[size:]
        self.t.truncate(path, size)

    def create(self) -> str:
        return self.create_at(self.fresh())

    def create_at(self, path: str) -> str:
        self.t.open(path)
        self.held[path] = bytearray()
        self.write(path, 0, self.chance.choice([b"", self.data(), self.data()]))
        return path

    def copy(self) -> str:
        path = self.some()
        data = bytes(self.held[path])
        to = self.fresh()
        self.t.open(to)
        self.held[to] = bytearray()
        if data:
            self.write(to, 0, data)
        if self.chance.random() < 0.3:
            self.t.fsync(to)
        return path

    def overwrite(self) -> None:
        self.write(self.some(), self.chance.choice([0, 0, 5, 100]), self.data())

    def append(self) -> None:
        path = self.some()
        self.write(path, len(self.held[path]), self.data())

    def cut(self) -> None:
        self.resize(self.some(), self.chance.choice([0, 7, 150]))

    def rewrite(self) -> None:
        path = self.some()
        self.resize(path, 0)
        self.write(path, 0, self.data())

    def sync(self) -> None:
        self.t.fsync(self.some())

    def sync_folder(self) -> None:
        self.t.fsync(self.chance.choice(self.folders))

    def sync_all(self) -> None:
        self.t.sync_all()

    def rename(self, path: str, to: str) -> None:
        if self.held.get(to) is not self.held[path]:
            self.t.move(path, to)
            self.held[to] = self.held.pop(path)

    def move(self) -> None:
        self.rename(self.some(), self.chance.choice([self.fresh(), self.some()]))

    def replace(self) -> None:
        path = self.some()
        made = self.create()
        if self.chance.random() < 0.5:
            self.t.fsync(made)
        self.rename(made, path)

    def copy_and_remove(self) -> None:
        self.unlink(self.copy())

    def copy_and_rewrite(self) -> None:
        path = self.copy()
        self.resize(path, 0)
        self.write(path, 0, self.data())

    def work_on_scratch(self) -> None:
        """A file that is replaced, and removed some calls later."""
        path = self.create()
        for _ in range(self.chance.choice([0, 1, 2])):
            getattr(self, self.chance.choice(STEPS + NAMES).replace(" ", "_"))()
        if path in self.held:
            self.rename(self.create(), path)
        for _ in range(self.chance.choice([0, 1])):
            getattr(self, self.chance.choice(STEPS).replace(" ", "_"))()
        if path in self.held:
            self.unlink(path)

    def recreate(self) -> None:
        path = self.some()
        if self.chance.random() < 0.2:
            with self.t.thread(2, pid=200):
                self.unlink(path)
        else:
            self.unlink(path)
        for _ in range(self.chance.choice([0, 0, 0, 1])):
            getattr(self, self.chance.choice(STEPS).replace(" ", "_"))()
        made = self.create_at(path)
        if self.chance.random() < 0.3:
            self.t.fsync(made)

    def link(self) -> None:
        path, to = self.some(), self.fresh()
        self.t.link(path, to)
        self.held[to] = self.held[path]

    def remove(self) -> None:
        self.unlink(self.some())

    def unlink(self, path: str) -> None:
        self.t.remove(path)
        del self.held[path]

    def mkdir(self) -> None:
        path = self.fresh()
        self.t.mkdir(path)
        self.folders.append(path)


def differences(seed: int, tmp: Path) -> Iterator[str]:
    """States that the oracle and the reference judge differently."""
    model = ("ext4", "posix", "ext4-strict")[seed % 3]
    run = Recorded(tmp, Sequence(random.Random(seed)), FIRST, model, most=MOST)
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    first = {path: data for path, data in FIRST.items() if data is not None}
    reference = ReferenceSnapshot(run.graph, run.space, first)
    for state in run.states[:: max(1, len(run.states) // STATES)]:
        verdict = oracle.judge_state(state)
        if reference.loses(state) != (verdict.outcome is Outcome.FAIL):
            yield f"sequence {seed} under {model}, state {state}: {verdict.output or 'no loss'}"


def compare(seeds: range, tmp: Path) -> list[str]:
    return [text for seed in seeds for text in differences(seed, tmp / str(seed))]


@pytest.mark.parametrize("low", range(0, 30, 15))
def test_verdicts_are_those_of_the_rules_in_plain_python(low: int, tmp_path: Path) -> None:
    assert compare(range(low, low + 15), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("seeds", seeds_in_parts(2000, 100), ids=str)
def test_verdicts_on_2000_sequences_are_those_of_the_rules_in_plain_python(seeds: range, tmp_path: Path) -> None:
    assert compare(seeds, tmp_path) == []
