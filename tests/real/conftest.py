"""Builds each real program once a session and runs crashcheck on the configurations beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import real_programs


@dataclass(frozen=True, slots=True)
class Report:
    """How `crashcheck run` ended, and its JSON report."""

    exit_code: int
    output: str
    json: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        findings: list[dict[str, Any]] = self.json.get("findings", [])
        return findings

    @property
    def places(self) -> set[str]:
        """The names of the files that hold a finding's first location."""
        return {Path(finding["location"]["file"]).name for finding in self.findings}

    def assert_clean(self) -> None:
        """Every state of the strategy was tried, and none failed."""
        assert self.exit_code == 0, self.output
        run = self.json["run"]
        assert run["stop_reason"] == "exhausted"
        assert [run["states"][count] for count in ("failing", "flaky", "uncertain")] == [0, 0, 0]
        assert run["states"]["executed"] > 0
        assert self.findings == []
        # A run whose updates the trace does not explain would be clean for the wrong reason.
        assert run["trace"]["unexplained_bytes"] == 0

    def assert_found_in(self, *files: str) -> None:
        assert self.exit_code == 1, self.output
        assert self.places & set(files), self.output


Run = Callable[[str, str], Report]


@pytest.fixture(scope="session")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Path]:
    """(program, compilers of the workload, compilers of the check) -> a folder to run crashcheck in."""
    tools = {"plain": real_programs.plain, "crashcheck": real_programs.crashcheck}

    @cache
    def lay_out(program: str, workload: str, check: str) -> Path:
        folder = tmp_path_factory.mktemp(program)
        return real_programs.lay_out(program, folder, tools[workload](), tools[check]())

    return lay_out


@pytest.fixture(scope="session")
def crashcheck_run() -> Callable[..., Report]:
    """(folder, name of a configuration in it, further options...) -> report."""

    def run(folder: Path, configuration: str, *options: str) -> Report:
        report = folder / f"{configuration}.json"
        words = [real_programs.command("crashcheck"), "run", "-c", f"{configuration}.toml", *options]
        result = subprocess.run(
            [*words, "--format", f"json={report}"], cwd=folder, capture_output=True, text=True, check=False
        )
        output = result.stdout + result.stderr
        return Report(result.returncode, output, json.loads(report.read_text()) if report.exists() else {})

    return run


@pytest.fixture(scope="session")
def run(
    laid_out: Callable[[str, str, str], Path], crashcheck_run: Callable[..., Report]
) -> Callable[[str, str], Report]:
    """(program, configuration) -> report of the instrumented workload, checked by a plain check."""
    return lambda program, mode: crashcheck_run(laid_out(program, "crashcheck", "plain"), mode)
