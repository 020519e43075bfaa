"""The proposed edit fixes the buggy twins: applied, built, recorded and explored again, they have no finding."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashcheck import pipeline
from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.invariants.inference import Inferred
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.fixes import proposals
from crashcheck.config import load
from crashcheck.interruption import KeepOn, always
from crashcheck.stages import strategy_setup
from support.command_line import run_crashcheck
from support.compilers import needs_libpmem
from support.examples import build_only_what_was_edited
from support.paths import EXAMPLES
from support.reports.runs import LEVEL_HASH
from support.reports.suggestions import accept, suggested

# Each planted bug of kind ordering or unpersisted, and what its edit adds.
MENDED = {
    "acked-queue": ("    persist(&queue->count);",),
    "level-hash": (
        "        flush(&bucket->entry[i], sizeof bucket->entry[i]);",
        "        fence();",
    ),
    "lock-free-list": ("        clwb(&node->next);",),
    "msync-kv": ("    sync_pages(&store->records[number], sizeof store->records[number]);",),
    "output-equivalence": ("    fence();",),
    "pmem-log": ("    pmem_drain();",),
}
NO_FLUSH_HELPS = {"btree-split": "no flush is needed: store `pool.leaves[].bitmap` at buggy.cpp:78 last"}


def copied(name: str, tmp_path: Path) -> Path:
    folder = tmp_path / "kopie für tests" / name
    shutil.copytree(
        EXAMPLES / name, folder, ignore=shutil.ignore_patterns("buggy", "fixed", "check", "*.json", ".crashcheck")
    )
    build_only_what_was_edited(folder)
    return folder


def crashcheck(folder: Path, environment: dict[str, str], *words: str) -> tuple[int, str, str]:
    done = run_crashcheck(*words, "-c", "buggy.toml", cwd=folder, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", MENDED)
def test_the_edit_fixes_the_bug_and_is_what_the_suggestions_write(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    if name == "pmem-log":
        needs_libpmem()
    folder = copied(name, tmp_path)
    before = (folder / "buggy.c").read_text().split("\n")
    crashcheck(folder, environment, "fix")
    known = proposals.newest(folder / "buggy.toml")
    assert known is not None
    findings = (replace(LEVEL_HASH, id=one.id, fix=one.fix) for one in known.findings)
    accepted = tmp_path / "accepted"
    accepted.mkdir()
    shutil.copy(folder / "buggy.c", accepted)
    accept(accepted, suggested(accepted, *findings))
    code, printed, error = crashcheck(folder, environment, "fix", "--apply", "--verify")
    # an operation whose loss no output shows is named before each search; a slow machine's log has lines of progress
    usual = ("does not show whether operations were lost", " in this phase)")
    others = [line for line in error.splitlines() if not any(words in line for words in usual)]
    assert (code, others) == (0, []), printed + error
    after = (folder / "buggy.c").read_text().split("\n")
    added = list(after)
    for line in before:
        added.remove(line)
    assert tuple(added) == MENDED[name]
    assert " with this change on the recorded run" in printed
    assert "after the edit: No findings; all " in printed
    assert "1 of 1 fixed" in printed
    assert (accepted / "buggy.c").read_text() == (folder / "buggy.c").read_text()


@pytest.mark.parametrize("in_time", [True, False])
def test_what_was_inferred_for_the_search_serves_its_fixes_and_else_their_time_bounds_it(
    in_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    """Where the time ended the inference, the report has a warning."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    bounded: list[bool] = []

    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn, **more: Any) -> Inferred:
        bounded.append(keep_on is not always)
        if not in_time:
            raise OutOfTime
        return whole(found, facts, keep_on=keep_on, **more)

    whole = strategy_setup.infer
    monkeypatch.setattr(strategy_setup, "infer", infer)
    result = pipeline.run(load(copied("level-hash", tmp_path) / "buggy.toml")).result
    assert bounded == [True] * (1 if in_time else 2)
    note = "likely invariants were not inferred"
    printed = [warning.partition(":")[0] for warning in result.warnings]
    assert printed == ([] if in_time else [note, f"while fixes were tried, {note}"])
    (finding,) = result.findings
    assert finding.fix is not None
    assert finding.fix.after_failing == 0


@pytest.mark.parametrize("name", NO_FLUSH_HELPS)
def test_where_no_flush_helps_there_is_no_edit(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = copied(name, tmp_path)
    code, printed, _ = crashcheck(folder, environment, "fix")
    assert code == 1
    assert NO_FLUSH_HELPS[name] in printed
    assert printed.endswith("no edit is suggested\n")


def test_a_diff_can_be_applied_by_patch_and_nothing_is_changed_unasked(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    if shutil.which("patch") is None:
        pytest.skip("patch is not installed")
    folder = copied("acked-queue", tmp_path)
    source = folder / "buggy.c"
    before = source.read_bytes()
    code, printed, _ = crashcheck(folder, environment, "fix")
    assert (code, source.read_bytes()) == (0, before)
    (id_,) = [line.split()[0] for line in printed.splitlines() if "unpersisted:" in line]
    patch = printed[printed.index("--- a/") :]
    subprocess.run(["patch", "-p1", "--quiet"], cwd=folder, input=patch, text=True, check=True)
    assert "persist(&queue->count);" in source.read_text().split("\n")[39]

    code, _, error = crashcheck(folder, environment, "fix", id_, "--apply")
    assert (code, "[fix-source-changed]" in error) == (2, True)
    code, _, error = crashcheck(folder, environment, "fix", "ffff")
    assert (code, "[fix-no-finding]" in error) == (2, True)
    code, _, error = crashcheck(folder, environment, "fix", "--verify")
    assert (code, "[bad-option]" in error) == (2, True)


def test_a_file_outside_of_the_project_is_not_edited(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = copied("acked-queue", tmp_path)
    outside = tmp_path / "elsewhere.c"
    shutil.move(folder / "buggy.c", outside)
    os.symlink(outside, folder / "buggy.c")
    code, _, error = crashcheck(folder, environment, "fix", "--apply")
    assert (code, "[fix-outside]" in error) == (2, True), error
    assert outside.read_text() == (EXAMPLES / "acked-queue" / "buggy.c").read_text()


def test_a_source_beside_the_folder_of_the_configuration_is_edited_and_its_diff_names_where_it_applies(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """The repository is the project."""
    folder = copied("acked-queue", tmp_path)
    root, source = folder.parent, folder.parent / "source"
    source.mkdir()
    for name in ("buggy.c", "queue.h"):
        shutil.move(folder / name, source)
    (folder / "Makefile").write_text(
        "all:\n\t$(CC) -O1 -g -o buggy ../source/buggy.c\n\t$(CC) -O1 -g -I../source -o check check.c\n"
    )
    git = ["git", "-C", str(root)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    code, printed, error = crashcheck(folder, environment, "fix")
    assert (code, "--- a/source/buggy.c\n+++ b/source/buggy.c\n" in printed) == (0, True), printed + error
    assert "\napply it in ..: `git apply` and `patch -p1` take its paths from there\n" in printed
    subprocess.run([*git, "apply"], input=printed[printed.index("--- a/") :], text=True, check=True)
    applied = (source / "buggy.c").read_text()
    assert applied != (EXAMPLES / "acked-queue" / "buggy.c").read_text()
    assert "persist(&queue->count);" in applied

    shutil.copy2(EXAMPLES / "acked-queue" / "buggy.c", source)
    code, printed, error = crashcheck(folder, environment, "fix", "--apply")
    assert (code, printed.endswith("\nedited ../source/buggy.c\n")) == (0, True), printed + error
    assert (source / "buggy.c").read_text() == applied
