"""Buggy and fixed twins: in each buggy one exactly the expected findings, in each fixed one none, exhaustively."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import compilers
from support.command_line import run_crashcheck
from support.examples import NOT_COPIED, BuiltExamples
from support.paths import EXAMPLES

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/expected.json"))
TWINS = ("buggy", "fixed")


def run(folder: Path, twin: str, depth: int, report: Path, environment: dict[str, str]) -> tuple[int, dict[str, Any]]:
    words = ["run", "-c", f"{twin}.toml", "--depth", str(depth), "--format", f"json={report}"]
    done = run_crashcheck(*words, cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, json.loads(report.read_text(encoding="utf-8"))


def select(finding: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """`finding` cut down to the keys of `expected`."""
    cut: dict[str, Any] = {}
    for key, value in expected.items():
        got = finding.get(key)
        cut[key] = select(got, value) if isinstance(value, dict) and isinstance(got, dict) else got
    return cut


def test_there_are_the_promised_examples() -> None:
    assert NAMES == [
        "acked-queue",
        "btree-split",
        "checksum-header",
        "level-hash",
        "lock-free-list",
        "msync-kv",
        "output-equivalence",
        "pmem-log",
        "recovery-twice",
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("twin", TWINS)
def test_the_twin_has_exactly_the_expected_findings(
    name: str, twin: str, built_example: BuiltExamples, tmp_path: Path, environment: dict[str, str]
) -> None:
    of_both = json.loads((EXAMPLES / name / "expected.json").read_text(encoding="utf-8"))
    expected = of_both[twin]
    depth = of_both.get("depth", 1)
    exit_code, report = run(built_example(name), twin, depth, tmp_path / "report.json", environment)
    findings = report["findings"]
    assert [select(finding, known) for finding, known in zip(findings, expected["findings"], strict=False)] == expected[
        "findings"
    ]
    assert len(findings) == len(expected["findings"]), [finding["message"] for finding in findings]
    assert exit_code == (1 if expected["findings"] else 0)

    states = report["run"]["states"]
    assert report["run"]["stop_reason"] == "exhausted"
    assert states["feasible"] == states["executed"] + states["pruned"] + states["explored"]
    assert states["skipped"] == 0
    assert states["flaky"] == 0
    assert bool(states["failing"]) == bool(expected["findings"])
    assert states["feasible"] == expected["feasible"]
    assert states["feasible_exact"]


@pytest.mark.parametrize("name", NAMES)
def test_the_twins_differ_by_a_few_lines_only(name: str) -> None:
    """The difference is the fix: nothing else may have drifted apart."""
    (buggy,) = (EXAMPLES / name).glob("buggy.c*")
    fixed = buggy.with_stem("fixed")
    difference = set(buggy.read_text().splitlines()) ^ set(fixed.read_text().splitlines())
    assert len(difference) <= 8


@pytest.mark.parametrize("name", NAMES)
def test_the_example_builds_with_gcc_without_a_warning(name: str, tmp_path: Path) -> None:
    """As it does with clang, below crashcheck-cc: `built_example` sees that."""
    cc, cxx = compilers.named("gcc")
    if name == "pmem-log":
        compilers.needs_libpmem()
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=NOT_COPIED)
    flags = "-O1 -g -Wall -Wextra -Werror"
    make = ["make", "-s", f"CC={cc}", f"CXX={cxx}", f"CFLAGS={flags}", f"CXXFLAGS={flags}"]
    done = subprocess.run(make, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("damaged", "accepted", "status"), [(None, 3, 0), (1, 3, 1), (2, 3, 1), (3, 3, 1), (None, 4, 1)]
)
def test_the_check_of_the_queue_reads_each_message_and_each_promise(
    damaged: int | None, accepted: int, status: int, tmp_path: Path
) -> None:
    """Crash states of the twins lose whole messages; a check that reads one less would pass with both."""
    check = tmp_path / "check"
    flags = ["-O1", "-o", str(check), str(EXAMPLES / "acked-queue" / "check.c")]
    subprocess.run([*compilers.c_compiler(), *flags], check=True)
    messages = [(number, 250 * number + (number == damaged)) for number in (1, 2, 3)]
    lines = [struct.pack("<QQ", *words).ljust(64, b"\0") for words in ((3, 0), *messages)]
    (tmp_path / "queue.pm").write_bytes(b"".join(lines).ljust(64 * 17, b"\0"))
    (tmp_path / "stdout").write_text("".join(f"accepted {number}\n" for number in range(1, accepted + 1)))
    done = subprocess.run([str(check), str(tmp_path / "queue.pm"), str(tmp_path / "stdout")], capture_output=True)
    assert done.returncode == status, done.stderr
