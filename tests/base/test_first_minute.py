"""What somebody meets who knows nothing of crashcheck: its example and the report."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

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
