"""What a recording did not see is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.checker.results import NotInstrumented
from crashcheck.command import Command
from crashcheck.stages.run_summary import not_instrumented
from support.compilers import c_compiler
from support.tracing import TraceBuilder


def test_a_program_built_by_another_compiler_is_named_where_changes_are_unexplained(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    trace, command = t.trace(), Command.of_text("cd . && ./kv {pool}/p")
    facts = ProgramFacts({}, (), (str(tmp_path / "kv"), "/usr/bin/dash"))
    assert not_instrumented(facts, trace, command, tmp_path, unexplained=True) == (
        NotInstrumented("kv", "built without crashcheck-cc: its own stores are not seen"),
    )
    assert not_instrumented(facts, trace, command, tmp_path) == ()


def test_the_libraries_of_a_program_that_writes_nothing_are_no_gap(tmp_path: Path) -> None:
    (tmp_path / "ask.c").write_text("int ask(void) { return 0; }\n")
    (tmp_path / "client.c").write_text("int ask(void);\nint main(void) { return ask(); }\n")
    for words in (["-shared", "-fPIC", "-o", "libask.so", "ask.c"], ["-o", "client", "client.c", "./libask.so"]):
        subprocess.run([*c_compiler(), *words], cwd=tmp_path, check=True)
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    trace, command = t.trace(), Command.of_text("./client {pool}/p")
    facts = ProgramFacts.load([tmp_path / "client"])
    assert facts.without_facts == (str(tmp_path / "client"),)
    assert not_instrumented(facts, trace, command, tmp_path) == ()
    unexplained = not_instrumented(facts, trace, command, tmp_path, unexplained=True)
    assert {Path(each.unit).name for each in unexplained} == {"client", "libask.so"}
