"""`python -m bench`: which parts run, with what, and where their figures go."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench.measure import Spread

from bench import __main__ as command


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, tuple[int, ...]]]:
    """The parts that were measured, with their parameters; figures go to `tmp_path`."""
    calls: list[tuple[str, tuple[int, ...]]] = []

    def imported(name: str) -> SimpleNamespace:
        def measure(*parameters: int) -> dict[str, object]:
            calls.append((name, parameters))
            return {"figure": len(calls)}

        return SimpleNamespace(measure=measure, __doc__="A part.")

    monkeypatch.setattr(command.importlib, "import_module", imported)
    monkeypatch.setattr(command, "OUTPUT", tmp_path / "speed.json")
    return calls


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    return command.main()


def test_guard_runs_only_if_named_and_has_a_file_of_its_own(
    called: list[tuple[str, tuple[int, ...]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(monkeypatch, "guard", "--repetitions", "2", "--series", "7") == 0
    assert called == [("bench.guard", (2, 7))]
    assert json.loads((tmp_path / "guard.json").read_text(encoding="utf-8"))["figures"] == {"guard": {"figure": 1}}
    called.clear()
    assert run(monkeypatch) == 0
    assert called == [(f"bench.{part}", (5,)) for part in command.PARTS]
    assert {path.name for path in tmp_path.iterdir()} == {"guard.json", "speed.json"}


def test_the_interval_of_a_median_leaves_out_what_chance_puts_outside_in_one_sitting_of_twenty() -> None:
    twenty = Spread.of(range(20, 0, -1))
    assert (twenty.median, twenty.least, twenty.most, twenty.low, twenty.high) == (10.5, 1, 20, 6, 15)
    five = Spread.of([3, 1, 2, 5, 4])
    assert (five.low, five.high) == (1, 5)
