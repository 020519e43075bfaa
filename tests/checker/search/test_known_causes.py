"""Failing states that look like known ones: counted without further runs, and no other bug hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.search.crash_states import SearchResult
from support.checked_worlds import VALID, VALUE, World, put_flag_first, words

SLOTS = 24


def explore(folder: Path, clauses: Path, *claims: str) -> SearchResult:
    check = words([str(clauses), "{pool}/p", "{acked}", *claims])
    return World(folder, check, lambda t: put_flag_first(t, SLOTS), sites={1: VALUE, 2: VALID}).explore()


def claims(mark: str = "") -> list[str]:
    return [f"{mark}{at + 64}>{at}" for at in range(0, SLOTS * 256, 256)]


def test_states_of_a_known_signature_cost_no_further_runs(
    tmp_path: Path, clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = explore(tmp_path / "few", clauses, *claims())
    monkeypatch.setattr("crashcheck.checker.search.failures.CONFIRMATIONS", 1 << 30)
    all_looked_into = explore(tmp_path / "all", clauses, *claims())
    (finding,), (same,) = found.findings, all_looked_into.findings
    assert (finding.id, finding.states) == (same.id, same.states)
    assert found.states == all_looked_into.states
    assert found.probes < all_looked_into.probes / 2


def test_another_way_to_end_is_examined(tmp_path: Path, clauses: Path) -> None:
    late = claims()
    late[-1] = f"!{late[-1]}"
    found = explore(tmp_path / "world", clauses, *late)
    assert found.states.failing == sum(finding.states for finding in found.findings)
    assert len(found.findings) == 1
