"""A build that fails: the hint names what a newcomer has to know."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.config import parse
from crashcheck.errors import CrashcheckError
from crashcheck.stages.recording import build

LEAST = '[workload]\ncommand = "./p {pool}/d"\n[pool]\nfiles = ["d"]\n[check]\ncommand = "true"\n[build]\ncommand = '


@pytest.mark.parametrize(("command", "hinted"), [("crashcheck-cc -c gnu.c", True), ("sh -c 'exit 3'", False)])
def test_where_clang_refuses_a_source_the_hint_names_clang(tmp_path: Path, command: str, hinted: bool) -> None:
    (tmp_path / "gnu.c").write_text("int main(void) { int n = 1; int f(void) { return n; } return f(); }\n")
    run = tmp_path / "run"
    run.mkdir()
    config = parse(f'{LEAST}"{command}"\n', tmp_path / "crashcheck.toml")
    with pytest.raises(CrashcheckError, match="build command exited") as caught:
        build(config, run)
    assert ("crashcheck-cc is clang" in caught.value.hint) == hinted
