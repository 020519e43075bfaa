"""The examples: representative testing finds what the exhaustive search finds, in fewer states."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashcheck import pipeline
from crashcheck.checker.results import Location, RunResult, StopReason
from crashcheck.config import BuildConfig, load, override
from support.command_line import run_crashcheck
from support.examples import BuiltExamples
from support.paths import EXAMPLES

# Of a crash of the workload; those that need a crash of the recovery as well are another matter.
NAMES = sorted(
    path.parent.name for path in EXAMPLES.glob("*/expected.json") if "depth" not in json.loads(path.read_text("utf-8"))
)
# What docs/behaviours.md lists as not seen: the entry is written through a pointer to it alone, so that no site shows
# that it is part of the bucket whose word commits it.
MISSED: set[tuple[str, str]] = set()
# One behaviour is the whole run: each node is published before it has persisted, and nothing ever ends an epoch.
WHOLE = {("lock-free-list", "buggy")}


def run(folder: Path, twin: str, strategy: str) -> RunResult:
    """What `crashcheck run` finds, without building again and without looking for fixes."""
    config = replace(load(folder / f"{twin}.toml"), build=BuildConfig())
    result = pipeline.run(override(config, strategy=strategy, fixes=False)).result
    assert result.stop_reason is StopReason.EXHAUSTED
    return result


def culprits(result: RunResult) -> list[tuple[str, ...]]:
    return sorted(
        (finding.kind, place(finding.location), *map(place, finding.evidence.blamed)) for finding in result.findings
    )


def culprit(expected: dict[str, Any]) -> tuple[str, ...]:
    return (expected["kind"], *("{file}:{line}".format(**expected[name]) for name in ("location", "other")))


def place(location: Location | None) -> str:
    return f"{location.file}:{location.line}" if location else ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("twin", ["buggy", "fixed"])
def test_pathfinder_finds_the_same_culprits_as_the_exhaustive_search_in_fewer_states(
    name: str, twin: str, built_example: BuiltExamples
) -> None:
    pathfinder = run(built_example(name), twin, "pathfinder")
    if twin == "buggy" and (name, twin) not in WHOLE:
        exhaustive = run(built_example(name), twin, "exhaustive")
        found, most = culprits(exhaustive), exhaustive.states.executed
        assert found
    else:  # tests/examples shows what a search of all states finds
        expected = json.loads((EXAMPLES / name / "expected.json").read_text("utf-8"))[twin]
        found, most = sorted(map(culprit, expected["findings"])), expected["feasible"]
    assert culprits(pathfinder) == ([] if (name, twin) in MISSED else found)
    assert pathfinder.states.executed <= (most if (name, twin) in WHOLE else most // 2)


def test_groups_are_listed_a_row_each_with_their_sites(
    built_example: BuiltExamples, environment: dict[str, str]
) -> None:
    words = ["groups", "-c", "buggy.toml"]
    done = run_crashcheck(*words, cwd=built_example("level-hash"), env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    invariant = (
        "`bucket.valid[]` must persist before `bucket.entry[].key`: buggy.c:41 writes `bucket.entry[].key` after "
        "buggy.c:39 has tested `bucket.valid[]` (RO2; held 20 times, may be violated 24 times) and 1 more"
    )
    sites = [
        "      buggy.c:41 insert_into bucket.entry[].key",
        "      buggy.c:42 insert_into bucket.entry[].value",
        "      buggy.c:43 insert_into bucket.valid[]",
    ]
    assert done.stdout.splitlines() == [
        "48 update behaviours in 2 groups",
        "rank  score  type           members  updates  states  representative",
        "   1   1.14  bucket, entry       40        3       6  table.pm+448, operation 13",
        f"      may violate {invariant}; 3 updates",
        *sites,
        "   2   1.14  bucket, entry       40        3       6  table.pm+448, operation 17",
        f"      may violate {invariant}; 3 updates",
        *sites,
        "the check's reads are no evidence for likely invariants: "
        "no code built with crashcheck-cc read the files through a mapping",
    ]
