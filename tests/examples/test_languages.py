"""The careless program of each language loses its setting in a crash, and the careful one does not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.command_line import run_crashcheck
from support.paths import EXAMPLES

LANGUAGES = EXAMPLES / "languages"
IN_PLACE = "`cfg.json` can be empty after a crash: it is emptied before it is written"
# By the end of the name: the program that runs it, or builds it, and the line that the careless one is blamed with.
RUNS = {"py": "python3", "js": "node", "rb": "ruby", "pl": "perl", "php": "php", "sh": "bash", "java": "java"}
BUILDS = {"go": ["go", "build", "-o"], "rs": ["rustc", "-g", "-o"]}
BLAMED = {
    "py": "`cfg.json` can be empty after a crash: `save` (careless.py:5) empties it before it writes it",
    "js": "`cfg.json` can be empty after a crash: `save` (careless.js:4) empties it before it writes it",
    "java": "`cfg.json` can be empty after a crash: `Careless.save` (Careless.java:7) empties it before it writes it",
    "php": "`cfg.json` can be empty after a crash: `save` (careless.php:4) empties it before it writes it",
    "pl": "`cfg.json` can be empty after a crash: `save` (careless.pl:5) empties it before it writes it",
    "rb": "`cfg.json` can be empty after a crash: `save` (careless.rb:4) empties it before it writes it",
    "sh": "`cfg.json` can be empty after a crash: `save` (careless.sh:2) empties it before it writes it",
    "go": "`cfg.json` can be empty after a crash: `main.save` (careless.go:9) empties it before it writes it",
    "rs": "`cfg.json` can be empty after a crash: `save` (careless.rs:4) empties it before it writes it",
}


def tried(program: Path, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit status of `crashcheck try` of a program in a folder with a setting, and its first line."""
    ends = program.suffix[1:]
    if ends in BUILDS:
        built = folder.parent / f"{program.stem}-program"
        subprocess.run([*BUILDS[ends], str(built), str(program)], check=True, capture_output=True)
        words = [str(built)]
    else:
        words = [RUNS[ends], str(program)]
    folder.mkdir()
    (folder / "cfg.json").write_text("{}\n")
    done = run_crashcheck("try", "--budget", "60s", "--states", "60", "--", *words, cwd=folder, env=environment)
    assert done.stdout.endswith("saved\n")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("crashcheck: ")]
    return done.returncode, lines[0].replace(f"{LANGUAGES}/", "")


def test_there_is_a_pair_in_each_language() -> None:
    pairs = sorted(path.name.lower() for path in LANGUAGES.iterdir() if path.suffix != ".md")
    assert pairs == sorted(f"{kind}.{ends}" for kind in ("careful", "careless") for ends in RUNS | BUILDS)


@pytest.mark.slow
@pytest.mark.parametrize("ends", [*RUNS, *BUILDS])
def test_a_careless_program_fails_with_its_line_and_a_careful_one_passes(
    ends: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    program = RUNS.get(ends) or BUILDS[ends][0]
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    careless, careful = ("Careless", "Careful") if ends == "java" else ("careless", "careful")
    assert tried(LANGUAGES / f"{careless}.{ends}", tmp_path / "careless", environment) == (
        1,
        BLAMED[ends],
    )
    code, line = tried(LANGUAGES / f"{careful}.{ends}", tmp_path / "careful", environment)
    assert (code, "No crash" in line or "no finding" in line.lower()) == (0, True), line


def test_a_runtime_whose_lines_are_not_read_is_named(tmp_path: Path, environment: dict[str, str]) -> None:
    runtime = tmp_path / "deno"
    shutil.copy(shutil.which("cp") or "", runtime)
    (tmp_path / "cfg.json").write_text("{}\n")
    (tmp_path / "new").write_text("{1}\n")
    done = run_crashcheck("try", "--states", "20", "--", str(runtime), "new", "cfg.json", cwd=tmp_path, env=environment)
    assert "no line is known: deno keeps no line that can be read; node does\n" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "ends", "why"),
    [
        ("dash", "sh", "dash keeps no line that can be read; bash does"),
    ],
)
def test_a_finding_without_a_line_names_the_reason(
    program: str, ends: str, why: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    (tmp_path / "cfg.json").write_text("{}\n")
    words = ["try", "--budget", "60s", "--states", "60", "--", program, str(LANGUAGES / f"careless.{ends}")]
    done = run_crashcheck(*words, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (1, "saved\n")
    assert f"; no line is known: {why}\n" in done.stderr
    assert IN_PLACE in done.stderr
