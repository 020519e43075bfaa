"""What a run has read is freed when the run ends, and not when Python next looks for reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crashcheck import mutation_campaign, pipeline
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.config import load, override
from support.examples import BuiltExamples


def traces() -> int:
    return sum(type(each) is Trace for each in gc.get_objects())


@contextmanager
def no_collection() -> Iterator[None]:
    """Reference cycles from before are gone; of those that are made until the end, none is looked for."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(("example", "depth"), [("acked-queue", 1), ("recovery-twice", 2), ("msync-kv", 1)])
def test_after_a_run_no_trace_is_alive(built_example: BuiltExamples, example: str, depth: int) -> None:
    config = load(built_example(example) / "buggy.toml")
    with no_collection():
        before = traces()
        assert pipeline.run(config, pipeline.RunOptions(depth=depth)).result.findings
        assert traces() == before


def test_after_a_run_of_system_calls_no_trace_is_alive(tmp_path: Path) -> None:
    workload = 'printf old > "$0/f"; printf new > "$0/g"; mv "$0/g" "$0/f"'
    (tmp_path / "crashcheck.toml").write_text(
        f"""
        [workload]
        command = ["sh", "-c", '''{workload}''', "{{pool}}"]
        recorder = "syscalls"
        [pool]
        files = ["**"]
        [check]
        oracle = "snapshot"
        [model]
        name = "ext4"
        """,
        encoding="utf-8",
    )
    config = load(tmp_path / "crashcheck.toml")
    with no_collection():
        before = traces()
        assert pipeline.run(config).result.states.feasible > 1
        assert traces() == before


def test_after_a_mutation_campaign_no_trace_is_alive(built_example: BuiltExamples) -> None:
    config = override(load(built_example("acked-queue") / "fixed.toml"), states=20)
    with no_collection():
        before = traces()
        assert mutation_campaign.mutate(config).results
        assert traces() == before
