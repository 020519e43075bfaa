"""The structures of examples/structures: right as dictionaries, rightly described, and with a bug in them found."""

from __future__ import annotations

import itertools
import json
import random
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support import compilers
from support.command_line import run_crashcheck

STRUCTURES = Path(__file__).resolve().parent.parent.parent / "examples" / "structures"
NAMES = sorted(path.parent.name for path in STRUCTURES.glob("*/bugs.toml"))
KINDS = {"ordering", "atomicity", "unpersisted", "recovery-failure"}
HARD = {"subset", "line", "late"}
# A bug that a few insertions show, where it is not the first one that is not hard.
FEW = {"b-tree": 10, "clht": 1, "crit-bit-tree": 2, "level-hash": 3, "red-black-tree": 4}
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SANITIZED = " ".join(("-O1 -g -Wall -Wextra -Werror", *SANITIZERS))


def described(name: str) -> dict[str, Any]:
    return tomllib.loads((STRUCTURES / name / "bugs.toml").read_text(encoding="utf-8"))


def source_of(name: str) -> str:
    path: Path = STRUCTURES / name / described(name)["source"]
    return path.read_text(encoding="utf-8")


def copied(tmp_path: Path) -> Path:
    """The structures in a folder of their own, so that what is built stays out of the checkout."""
    folder = tmp_path / "structures"
    shutil.copytree(STRUCTURES, folder, ignore=shutil.ignore_patterns("driver", ".crashcheck"))
    return folder


def build(folder: Path, name: str, compiler: tuple[str, str], flags: str, bug: int = 0) -> Path:
    variables = [f"CC={compiler[0]}", f"CXX={compiler[1]}", f"CFLAGS={flags}", f"CXXFLAGS={flags}", f"BUG={bug}"]
    done = subprocess.run(["make", "-s", f"NAME={name}", *variables], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / name / "driver"


def random_operations(seed: int) -> list[str]:
    """Up to 1,500 operations on few or many keys, with few or many deletions, and a scan of everything."""
    choice = random.Random(seed)
    keys, deletions = choice.choice([10, 60, 500]), choice.choice([5, 15, 45])
    lines = []
    for _ in range(choice.choice([100, 1500])):
        word = choice.choices(["insert", "update", "delete", "query", "scan"], weights=[40, 15, deletions, 20, 3])[0]
        rest = {"insert": choice.randrange(2**31), "update": choice.randrange(2**31), "scan": 5}.get(word, "")
        lines.append(f"{word} {choice.randint(1, keys)} {rest}".strip())
    return [*lines, "scan 1 8000"]


def answers_of_a_dictionary(lines: list[str]) -> list[str]:
    held: dict[int, str] = {}
    answers = []
    for line in lines:
        word, number, *rest = line.split()
        key, there = int(number), int(number) in held
        if word == "scan":
            pairs = sorted(pair for pair in held.items() if pair[0] >= key)[: int(rest[0])]
            answers.append(f"scan {key}:" + "".join(f" {one}={value}" for one, value in pairs))
            continue
        if word == "query":
            answers.append(f"query {key}: {held.get(key, 'missing')}")
            continue
        refused = "exists" if word == "insert" else "missing"
        answers.append(f"{word} {key}: {refused if there == (word == 'insert') else 'ok'}")
        if word == "delete":
            held.pop(key, None)
        elif there == (word == "update"):
            held[key] = rest[0]
    return answers


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_as_a_dictionary_does_also_when_reopened(name: str, tmp_path: Path) -> None:
    driver = build(copied(tmp_path), name, compilers.sanitizing("clang", *SANITIZERS), SANITIZED)
    for seed in range(8):
        lines = random_operations(seed)
        cuts = [0, *sorted(random.Random(seed).sample(range(len(lines)), 3)), len(lines)]
        printed: list[str] = []
        for start, end in itertools.pairwise(cuts):
            operations = tmp_path / "operations"
            operations.write_text("".join(f"{line}\n" for line in lines[start:end]), encoding="ascii")
            done = subprocess.run([driver, tmp_path / f"pool-{seed}", operations], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            printed += done.stdout.splitlines()
        assert printed == answers_of_a_dictionary(lines)


@pytest.mark.parametrize("name", NAMES)
def test_gcc_builds_it_without_a_warning(name: str, tmp_path: Path) -> None:
    build(copied(tmp_path), name, compilers.named("gcc"), "-O1 -g -Wall -Wextra -Werror")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_planted_bug_builds_without_a_warning(name: str, tmp_path: Path) -> None:
    folder = copied(tmp_path)
    for bug in described(name)["bug"]:
        build(folder, name, compilers.named("gcc"), "-O1 -g -Wall -Wextra -Werror", bug["number"])


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_planted_is_described(name: str) -> None:
    listed = described(name)
    assert listed["name"] == name
    bugs = listed["bug"]
    assert [bug["number"] for bug in bugs] == list(range(1, len(bugs) + 1))
    source = source_of(name)
    marked = {int(number) for marks in re.findall(r"/\* BUG ([\d, ]+) \*/", source) for number in marks.split(",")}
    switched = {int(number) for number in re.findall(r"\bBUG [=!]= (\d+)", source)}
    assert marked == switched == {bug["number"] for bug in bugs}
    for bug in bugs:
        assert bug["kind"] in KINDS
        assert bug["shows"] in {"insert", "update", "delete", "open"}
        assert set(bug["hard"]) <= HARD
        assert re.search(rf"\b{re.escape(bug['function'])}\(", source)
        assert bug["what"].endswith(".")


def test_there_are_forty_bugs_of_all_kinds_and_some_of_each_difficulty() -> None:
    bugs = [bug for name in NAMES for bug in described(name)["bug"]]
    assert len(bugs) >= 40
    assert {bug["kind"] for bug in bugs} == KINDS
    for difficulty in HARD:
        assert sum(difficulty in bug["hard"] for bug in bugs) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_its_operations_are_those_that_the_options_give(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    words = ["ops", "--length", "200", *shlex.split(described(name)["operations"]), "-o", "made"]
    run_crashcheck(*words, cwd=tmp_path, env=environment).check_returncode()
    assert (tmp_path / "made").read_bytes() == (STRUCTURES / name / "operations.txt").read_bytes()


def run(
    name: str, bug: int, mix: str, strategy: str, tmp_path: Path, environment: dict[str, str]
) -> tuple[set[str], str]:
    """The kinds of what is found in eight operations, and why the search ended."""
    folder = copied(tmp_path) / name
    words = ["ops", "--length", "8", "--keys", "9", "--mix", mix, "--read-back"]
    for word in ("insert", "update"):
        words += ["--template", f"{word}={word} {{key}} {{number}}"]
    run_crashcheck(*words, "-o", "operations.txt", cwd=folder, env=environment).check_returncode()
    words = ["run", "--no-fixes", "--strategy", strategy, "--format", "json=report.json"]
    done = run_crashcheck(*words, cwd=folder, env={**environment, "BUG": str(bug)})
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {finding["kind"] for finding in report["findings"]}, report["run"]["stop_reason"]


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_bug_is_found_in_a_few_insertions(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    bugs = described(name)["bug"]
    plain = next(bug["number"] for bug in bugs if not bug["hard"] and bug["shows"] == "insert")
    bug = bugs[FEW.get(name, plain) - 1]
    assert run(name, bug["number"], "insert=1", "pathfinder", tmp_path, environment) == ({bug["kind"]}, "exhausted")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_a_bug_every_crash_of_eight_operations_is_right(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    mix = "insert=50,update=25,delete=25"
    assert run(name, 0, mix, "exhaustive", tmp_path, environment) == (set(), "exhausted")
