"""Outputs that are full, closed or of another encoding: the findings are reported all the same, without a traceback."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.cli.report import write_reports
from crashcheck.errors import CrashcheckError
from crashcheck.reports.formats import json_report
from support.reports.runs import LEVEL_HASH, ONE


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(json_report.render(ONE), encoding="utf-8")
    return path


def shell(environment: dict[str, str], command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, env={**environment, **variables}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("output", [">/dev/full", ">&-", "<&- >&-"])
@pytest.mark.parametrize("name", ["terminal", "json", "markdown"])
def test_findings_that_standard_output_cannot_take_are_listed_on_standard_error(
    report: Path, environment: dict[str, str], output: str, name: str
) -> None:
    done = shell(environment, f"crashcheck report --from {shlex.quote(str(report))} --format {name} {output}")
    assert done.returncode == 2
    assert "[output-unwritable]" in done.stderr
    assert LEVEL_HASH.id in done.stderr
    assert LEVEL_HASH.message in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("arguments", ["version", "ops", "ops --length 5000"])
@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_any_command_says_that_its_output_was_not_written(
    environment: dict[str, str], arguments: str, output: str
) -> None:
    done = shell(environment, f"crashcheck {arguments} {output}")
    assert done.returncode == 2
    assert "[output-unwritable]" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_closed_standard_error_is_not_written_into_files(environment: dict[str, str], tmp_path: Path) -> None:
    done = shell(environment, f"cd {shlex.quote(str(tmp_path))} && crashcheck run 2>&- <&-")
    assert (done.returncode, done.stdout) == (2, "")


def test_an_encoding_without_the_characters_gets_them_escaped(
    report: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    finding = replace(LEVEL_HASH, message="größer → kleiner")
    report.write_text(json_report.render(replace(ONE, findings=(finding,))), encoding="utf-8")
    options = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = shell(environment, f"crashcheck report --from {shlex.quote(str(report))}", **options)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"gr\xf6\xdfer \u2192 kleiner" in done.stdout
    command = f"crashcheck report --from {shlex.quote(str(report))} --format json > {shlex.quote(str(tmp_path))}/again"
    assert shell(environment, command, **options).returncode == 0
    again = json.loads((tmp_path / "again").read_text(encoding="utf-8"))
    assert again["findings"][0]["message"] == "größer → kleiner"


def test_the_terminal_report_is_printed_although_the_kept_one_finds_no_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.html"
    kept.symlink_to("/dev/full")
    write_reports(ONE, tmp_path, [("terminal", None)], kept=kept)
    out, err = capsys.readouterr()
    assert LEVEL_HASH.message in out
    assert "No space left on device. [report-unwritable]" in err
    assert not kept.is_symlink()


def test_reports_that_can_be_written_are_although_another_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    wanted = [("json", tmp_path / "full"), ("markdown", tmp_path / "fine"), ("terminal", None)]
    with pytest.raises(CrashcheckError) as caught:
        write_reports(ONE, tmp_path, wanted)
    assert caught.value.slug == "report-unwritable"
    assert (tmp_path / "fine").stat().st_size > 0
    assert LEVEL_HASH.message in capsys.readouterr().out
    assert not caught.value.hint


def test_findings_that_no_file_can_take_are_listed_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(CrashcheckError) as caught:
        write_reports(ONE, tmp_path, [("html", tmp_path / "full")])
    assert f"{LEVEL_HASH.id}  {LEVEL_HASH.message}" in str(caught.value)
