"""A check of nodes that stays finds what one that is started for each state finds, however badly it behaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_crashcheck

NODES = """
[[node]]
command = "sh {project}/node.sh"
count = 2
[strategy]
name = "dfs"
[check]
timeout_s = %g
%s
"""
NODE = "for at in 1 2; do sleep 1; echo $at; done\n"
# `judge` fails where n1 has printed all, and n0 nothing.
CHECK = """
import os, sys, time
def judge(state):
    printed = [open(f"{state}/n{node}.output").read() for node in range(2)]
    return not (printed[0] == "" and "2" in printed[1])
def answer(state, passes):
    print("ok" if passes else "fail", state, *["n1 is ahead"] * (not passes), flush=True)
def lines():
    for number, line in enumerate(open(sys.argv[1])):
        yield number, line.rstrip("\\n")
FIRST = os.path.getsize("starts") == 0
open("starts", "a").write(".")
if sys.argv[1] != "/dev/stdin":
    sys.exit(not judge(sys.argv[1]) and "n1 is ahead")
"""
GOOD = "for number, state in lines(): answer(state, judge(state))\n"
EACH, STAYS = "python3 -S check.py {state}", "python3 -S check.py {states}"


def searched(
    folder: Path, command: str, body: str = GOOD, *, timeout_s: float = 60, passes: bool = False
) -> dict[str, Any]:
    """What a search with a check reports, without what differs each time."""
    (folder / "node.sh").write_text(NODE)
    (folder / "check.py").write_text(
        CHECK.replace("return not", "return True or not" if passes else "return not") + body
    )
    (folder / "starts").write_text("")
    (folder / "crashcheck.toml").write_text(NODES % (timeout_s, f'after = "{command}"'))
    ended = run_crashcheck("run", "--jobs", "1", "--format", "json=report.json", cwd=folder, env=os.environ)
    assert ended.returncode in (0, 1), ended.stderr
    report = json.loads((folder / "report.json").read_text())
    shown = ("id", "message", "replay", "states")
    return {
        "findings": [{name: finding[name] for name in shown} for finding in report["findings"]],
        "states": report["run"]["states"],
        "warnings": report["run"]["warnings"],
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("each")
    report = searched(folder, EACH)
    assert [finding["message"] for finding in report["findings"]] == ["the check fails if timer 2 of n1 fires"]
    return report | {"starts": (folder / "starts").read_text()}


def same(report: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(report[name] == expected[name] for name in ("findings", "states"))


def test_a_process_that_stays_finds_what_a_process_for_each_state_finds(
    tmp_path: Path, expected: dict[str, Any]
) -> None:
    report = searched(tmp_path, STAYS)
    assert (same(report, expected), report["warnings"]) == (True, expected["warnings"])


def test_only_what_fails_and_few_that_pass_are_given_a_process_of_their_own(tmp_path: Path) -> None:
    """24 states of 6 runs: of those that pass, numbers 1, 2, 4, 8 and 16 are judged again, with damaged files, too."""
    for command, starts in ((EACH, 24), (STAYS, 1 + 2 * 5)):
        report = searched(tmp_path, command, "for number, state in lines(): answer(state, True)\n", passes=True)
        assert (report["findings"], len((tmp_path / "starts").read_text())) == ([], starts)


# Each ends or answers badly at some state, and is right about one that it is given alone.
HOSTILE = {
    "dies": "    if number == 2: os._exit(3)\n    answer(state, judge(state))\n",
    "hangs": "    if number == 2 and FIRST: time.sleep(1000)\n    answer(state, judge(state))\n",
    "answers about the state before": "    if number == 2: answer(last, True)\n"
    "    last = state\n    answer(state, judge(state))\n",
    "repeats its first answer": "    first = judge(state) if number == 0 else first\n    answer(state, first)\n",
    "keeps a file open": "    kept = open(state + '/log.jsonl'); answer(state, judge(state))\n",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_check_that_behaves_badly_finds_what_it_finds_alone(
    how: str, tmp_path: Path, expected: dict[str, Any]
) -> None:
    report = searched(
        tmp_path, STAYS, f"for number, state in lines():\n{HOSTILE[how]}", timeout_s=5 if how == "hangs" else 60
    )
    assert same(report, expected), report


def test_a_check_that_repeats_its_first_answer_is_named(tmp_path: Path) -> None:
    body = f"for number, state in lines():\n{HOSTILE['repeats its first answer']}"
    (note, *_) = searched(tmp_path, STAYS, body, passes=True)["warnings"]
    assert note == (
        "nothing counts of what was answered after other states, and each was judged again in a process of its own: "
        "the check passes after other states, and fails (fail) in a process of its own on the same files"
    )


def test_a_replay_gives_one_process_all_states(tmp_path: Path) -> None:
    (finding,) = searched(tmp_path, STAYS)["findings"]
    (tmp_path / "starts").write_text("")
    ended = run_crashcheck("replay", finding["replay"], cwd=tmp_path, env=os.environ)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (1, "Then the check fails.")
    starts = len((tmp_path / "starts").read_text())
    assert starts == 2 + 2 + 1  # what stays, until it ends on the damaged files; the first state, twice; the last one


@pytest.mark.parametrize(
    ("check", "what"),
    [
        ('end = "./check {states} {state}"', "[check] end: {states} and {state} exclude one another."),
        ('progress = "./check {states}"', "[check] progress: {states} can be used only in [check] after and end"),
    ],
)
def test_states_are_for_after_and_end_alone(check: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "crashcheck.toml").write_text(NODES % (1, check))
    ended = run_crashcheck("run", cwd=tmp_path, env=os.environ)
    assert (ended.returncode, what in ended.stderr) == (2, True), ended.stderr


def test_a_check_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "node.sh").write_text(NODE)
    (tmp_path / "crashcheck.toml").write_text(NODES % (1, 'end = "./missing {states}"'))
    ended = run_crashcheck("run", cwd=tmp_path, env=os.environ)
    assert (ended.returncode, "[check-not-started]" in ended.stderr) == (2, True), ended.stderr
