"""`crashcheck invariants` on real programs, from their source to the invariants of their loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_crashcheck
from support.examples import BuiltExamples


def shown(example: Path, twin: str, environment: dict[str, str], *options: str) -> str:
    words = ["invariants", "-c", f"{twin}.toml", *options]
    done = run_crashcheck(*words, cwd=example, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def invariants(example: Path, twin: str, environment: dict[str, str], note: str = "") -> list[dict[str, Any]]:
    document = json.loads(shown(example, twin, environment, "--json"))
    assert document["note"].endswith(note)
    assert bool(document["note"]) == bool(note)
    found: list[dict[str, Any]] = document["invariants"]
    return found


def one(found: list[dict[str, Any]], rule: str, first: str, then: str) -> dict[str, Any]:
    (only,) = [each for each in found if (each["rule"], each["first"], each["then"]) == (rule, first, then)]
    return only


@pytest.mark.parametrize(("twin", "may_be_violated"), [("buggy", True), ("fixed", False)])
def test_the_word_that_makes_an_entry_count_guards_its_key_and_its_value(
    built_example: BuiltExamples, environment: dict[str, str], twin: str, may_be_violated: bool
) -> None:
    found = invariants(built_example("output-equivalence"), twin, environment)
    for field in ("key", "value"):
        guarded = one(found, "RO3", f"bucket.entry[].{field}", "bucket.used")
        assert guarded["shared"] == "bucket"
        assert guarded["held"] >= 5
        assert bool(guarded["violated"]) == may_be_violated


@pytest.mark.parametrize(("twin", "may_be_violated"), [("buggy", True), ("fixed", False)])
def test_a_workload_that_reads_no_entry_teaches_only_what_its_writes_depend_on(
    built_example: BuiltExamples, environment: dict[str, str], twin: str, may_be_violated: bool
) -> None:
    """Its check reads with `fread`, which is not seen."""
    found = invariants(built_example("level-hash"), twin, environment, "read the files through a mapping")
    assert [(each["rule"], each["first"], each["then"], bool(each["violated"])) for each in found] == [
        ("RO2", "bucket.valid[]", "bucket.entry[].key", may_be_violated),
        ("RO2", "bucket.valid[]", "bucket.entry[].value", may_be_violated),
    ]


def test_the_list_is_the_same_each_time(built_example: BuiltExamples, environment: dict[str, str]) -> None:
    first, second = (
        shown(built_example("output-equivalence"), "buggy", {**environment, "PYTHONHASHSEED": seed}) for seed in "12"
    )
    assert first == second
    assert "`bucket.entry[].key` must persist before `bucket.used`: table.h:35 reads `bucket.entry[].key`" in first


def test_only_those_that_may_be_violated_are_listed_on_demand(
    built_example: BuiltExamples, environment: dict[str, str]
) -> None:
    listed = shown(built_example("output-equivalence"), "fixed", environment, "--violated")
    assert "may be violated 0 times" not in listed
    assert "15 likely invariants, 2 of which a crash state may violate" in listed
