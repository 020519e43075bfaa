"""The models of ext4 against a brute-force reference: files that grow, are cut and synced inside their blocks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support import reference_ext4
from support.examples_tried import seeds_in_parts
from support.folders import Recorded
from support.reference_ext4 import Folder, H, Q, Step, random_program
from support.tracing import CallsBuilder

MODELS = ("ext4", "ext4-strict", "ext4-writeback")


def play(t: CallsBuilder, first: bytes | None, program: list[Step]) -> None:
    size, name = len(first or b""), "f"
    if first is None:
        t.open("f")
    for at, (kind, *words) in enumerate(program):
        count = words[0] if words and isinstance(words[0], int) else 0
        match kind:
            case "append":
                t.append(name, size, bytes([65 + at]) * H * count)
                size += H * count
            case "write":
                t.write(name, H * count, bytes([65 + at]) * H)
            case "cut":
                t.truncate(name, H * count)
                size = H * count
            case "punch":
                t.allocate(name, Q * count, Q, 3)
            case "reserve":
                t.allocate(name, 0, H * count, 1)
            case "create":
                t.open(str(words[0]))
            case "rename":
                t.move("f", "g")
                name = "g"
            case "fsync":
                t.fsync(name)
            case "fdatasync":
                t.fdatasync(name)
            case _:
                t.fsync("")


def folders(model: str, first: bytes | None, program: list[Step], tmp_path: Path) -> set[Folder]:
    there = {} if first is None else {"f": first}
    run = Recorded(tmp_path, lambda t: play(t, first, program), there, model)
    return {frozenset((path, data or b"") for path, data in folder.items()) for folder in run.folders()}


def compare(model: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        first, program = random_program(random.Random(seed))
        expected = reference_ext4.folders(model, first, program)
        found = folders(model, first, program, tmp_path / str(seed))
        assert found == expected, (seed, first and len(first) // H, program)


@pytest.mark.parametrize("model", MODELS)
def test_a_model_of_ext4_allows_exactly_the_folders_of_the_reference(model: str, tmp_path: Path) -> None:
    compare(model, range(60), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seeds", seeds_in_parts(1000, 100), ids=str)
def test_a_model_of_ext4_allows_exactly_the_folders_of_the_reference_on_a_thousand_programs(
    seeds: range, model: str, tmp_path: Path
) -> None:
    compare(model, seeds, tmp_path)
