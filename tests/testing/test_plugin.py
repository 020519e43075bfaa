"""The plugin of pytest, in test runs of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parent.parent / "support"
TESTS = """\
import pytest
from hypothesis import Phase, given, settings, strategies
from settings_file import SAVED, START, careful, careless, load

def accepts(state):
    return load(state / "cfg.json") in ({}, SAVED)

@pytest.mark.parametrize("save", [careful, careless])
def test_check(crashes, save):
    crashes.check(save, "cfg.json", SAVED, start=START, check=accepts)

def test_loop(crashes):
    for state in crashes(careless, "cfg.json", SAVED, start=START):
        assert accepts(state)

@settings(max_examples=1, phases=[Phase.generate], deadline=None, derandomize=True)
@given(strategies.just(7))
def test_given(crashes, number):
    for state in crashes(careless, "cfg.json", number, start=START):
        assert load(state / "cfg.json") in ({}, number)

def test_remark(crashes):
    crashes.check(careless, "cfg.json", SAVED, start=START, check=lambda state: True)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(SUPPORT / "settings_file.py", folder)
    (folder / "test_settings.py").write_text(TESTS)
    return folder


def run(project: Path, *words: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *words]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def test_failures_are_shown_and_seen_again_by_their_tokens(project: Path) -> None:
    lines = run(project)
    assert lines[0].split()[0] == ".FFF."
    emptied = "`cfg.json` can be empty after a crash: `careless` (settings_file.py:14) empties it before it writes it"
    assert lines.count(f"E   crashcheck.testing.CrashFound: {emptied}") == 3
    assert "test_settings.py:14: in test_loop" in lines
    assert "E   Failing test case: test_given(" in lines
    again = [line.removeprefix("E   again  pytest ") for line in lines if line.startswith("E   again")]
    names = [line.partition(" --crash-state crash:")[0] for line in again]
    assert names == [
        "'test_settings.py::test_check[careless]'",
        *(f"test_settings.py::test_{name}" for name in ("loop", "given")),
    ]
    (remarks,) = [at for at, line in enumerate(lines) if line.strip("= ") == "crash states"]
    assert lines[remarks + 1].startswith(
        "test_settings.py::test_remark: the check also passes on the files filled with"
    )
    token = again[1].split()[-1]
    only = run(project, "test_settings.py::test_loop", "test_settings.py::test_check[careful]", "--crash-state", token)
    assert only[0].split()[0] == "FF"
    assert [line for line in only if re.match(r"E   [\w.]+Error: ", line)] == [
        "E   json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "E   crashcheck.errors.CrashcheckError: No call of crashes in this test did what the token of --crash-state "
        "belongs to. [token-other-trace]",
    ]


def test_the_plugin_imports_nothing_before_the_fixture_is_used() -> None:
    show = "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('crashcheck', 'numpy', 'llvmlite')))"
    command = [sys.executable, "-c", f"import sys, crashcheck.testing.plugin; {show}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = ["crashcheck", "crashcheck.testing", "crashcheck.testing.boundary", "crashcheck.testing.plugin"]
    assert done.stdout.split() == names
