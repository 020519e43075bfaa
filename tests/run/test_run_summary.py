"""What a recording did not see is named."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.checker.results import NotInstrumented
from crashcheck.command import Command
from crashcheck.stages.run_summary import not_instrumented
from support.tracing import TraceBuilder


def test_a_program_built_by_another_compiler_is_named_where_changes_are_unexplained(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    trace, command = t.trace(), Command.of_text("cd . && ./kv {pool}/p")
    facts = ProgramFacts({}, (), (str(tmp_path / "kv"), "/usr/bin/dash"), ())
    assert not_instrumented(facts, trace, command, tmp_path, unexplained=True) == (
        NotInstrumented("kv", "built without crashcheck-cc: its own stores are not seen"),
    )
    assert not_instrumented(facts, trace, command, tmp_path) == ()
