"""What somebody meets who knows nothing of crashcheck: its example, the report, and what the shell completes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crashcheck import cli
from support.command_line import run_crashcheck


def test_try_without_a_command_offers_an_example_that_finds_something_and_open_shows_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    asked = run_crashcheck("try", cwd=tmp_path, env=environment)
    assert asked.returncode == 2
    prepare, example = re.findall(r"^    (.*)$", asked.stderr, re.M)
    prepare = prepare.replace("/tmp/first", "first")
    subprocess.run(["sh", "-ec", prepare], cwd=tmp_path, check=True)
    program, *words = ["crashcheck", "try", "--", "sh", "-c", "echo new > settings"]
    assert example == f"{program} {' '.join(words[:-1])} '{words[-1]}'"
    folder = tmp_path / "first"
    assert run_crashcheck("open", "--print", cwd=folder, env=environment).returncode == 2
    done = run_crashcheck(*words, cwd=folder, env=environment)
    assert done.returncode == 1
    assert "`settings` can be empty after a crash: it is emptied before it is written" in done.stderr
    shown = run_crashcheck("open", "--print", cwd=folder, env=environment)
    assert "`settings` can be empty" in Path(shown.stdout.strip()).read_text(encoding="utf-8")
    newest = run_crashcheck("open", "--print", "--try", cwd=tmp_path, env=environment)
    assert Path(newest.stdout.strip()).is_file()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("crashcheck re", ["report", "record", "replay"]),
        ("crashcheck try --mo", ["--model"]),
        ("crashcheck try --model ext4-", ["ext4-strict", "ext4-writeback"]),
        ("crashcheck try -- gz", ["gzip"]),
    ],
)
def test_bash_completes_commands_options_and_their_values(
    typed: str, expected: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    script = run_crashcheck("completion", "bash", cwd=tmp_path, env=environment).stdout
    words = typed.split()
    asks = f'COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _crashcheck; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{asks}"], capture_output=True, text=True, check=True)
    assert set(expected) <= set(done.stdout.split())
    assert all(word.startswith(words[-1]) for word in done.stdout.split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str, tmp_path: Path, environment: dict[str, str]) -> None:
    script = run_crashcheck("completion", shell, cwd=tmp_path, env=environment).stdout
    assert all(name in script for name in cli.SUBCOMMANDS)
    if shutil.which(shell):
        options = ["--no-execute"] if shell == "fish" else ["-n"]
        assert subprocess.run([shell, *options], input=script, text=True, capture_output=True).returncode == 0


def test_a_shell_that_is_not_known_is_an_error(tmp_path: Path, environment: dict[str, str]) -> None:
    done = run_crashcheck("completion", "csh", cwd=tmp_path, env=environment)
    assert (done.returncode, "bash, zsh, fish" in done.stderr) == (2, True)
