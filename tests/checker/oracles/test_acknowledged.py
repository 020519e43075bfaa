"""A check that asks what was acknowledged, of a workload that acknowledges nothing in time, is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.oracles.acknowledged import never_acknowledged
from crashcheck.command import Command
from support.command_line import run_crashcheck
from support.tracing import TraceBuilder


@pytest.mark.parametrize(
    ("command", "marked", "noticed"), [("check {acked}", False, 1), ("check {acked}", True, 0), ("check", False, 0)]
)
def test_acked_without_marks_is_noticed(tmp_path: Path, command: str, marked: bool, noticed: int) -> None:
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("p")
    t.store("p", 0, 8, 1)
    if marked:
        t.begin(1)
        t.end(1)
    remarks = never_acknowledged(Command.of_text(command), t.trace(), None)
    assert [remark[:48] for remark in remarks] == ["the check asks for {acked}, but the workload mar"] * noticed


@pytest.mark.parametrize(("early", "noticed"), [(True, 0), (False, 1)])
def test_output_that_comes_after_the_last_update_is_noticed(tmp_path: Path, early: bool, noticed: int) -> None:
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("p")
    t.store("p", 0, 8, 1)
    if early:
        t.output(4)
    t.store("p", 8, 8, 1)
    t.output(8)
    (tmp_path / "stdout").write_text("one\ntwo\n")
    remarks = never_acknowledged(Command.of_text("check {stdout}"), t.trace(), tmp_path / "stdout")
    assert [remark[:70] for remark in remarks] == [
        "the check reads {stdout}, but the workload wrote its 2 lines after its"
    ] * noticed


def test_a_check_that_reads_output_of_a_workload_without_any_is_noticed(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("p")
    t.store("p", 0, 8, 1)
    (tmp_path / "stdout").touch()
    (remark,) = never_acknowledged(Command.of_text("check {stdout}"), t.trace(), tmp_path / "stdout")
    assert remark.startswith("the check reads {stdout}, which is empty in every crash state")


def test_the_remark_is_printed_before_the_search_and_is_in_the_report(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "crashcheck.toml").write_text(
        '[workload]\ncommand = "printf one > {pool}/a"\nrecorder = "syscalls"\n[pool]\nfiles = ["*"]\n'
        '[check]\ncommand = "test {acked} -le 1"\n[model]\nname = "ext4"\n'
    )
    done = run_crashcheck("run", "--no-fixes", "--format", "json", cwd=tmp_path, env=environment)
    assert done.returncode == 0
    assert "crashcheck: the check asks for {acked}, but the workload marked" in done.stderr
    assert "the check asks for {acked}, but the workload marked" in done.stdout
