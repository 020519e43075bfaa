"""`crashcheck report` makes of a JSON report what the run itself would have made."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from crashcheck.cli.report import FORMATS
from crashcheck.reports.formats import json_report
from support.command_line import run_crashcheck
from support.reports.runs import FULL, LEVEL_HASH_C, ONE, hostile


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the source and the report of a run."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "level_hash.c").write_text("\n".join(LEVEL_HASH_C) + "\n")
    (tmp_path / "report.json").write_text(json_report.render(FULL), encoding="utf-8")
    return tmp_path


def crashcheck(project: Path, environment: dict[str, str], *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    kept = {name: value for name, value in environment.items() if not name.startswith("GITHUB_")}
    kept |= {name: value for name, value in environment.items() if name == "GITHUB_ACTIONS" and value == "test"}
    done = run_crashcheck("report", *arguments, cwd=project, env=kept, given=stdin)
    return done.returncode, done.stdout, done.stderr


def test_each_format_goes_to_its_file(project: Path, environment: dict[str, str]) -> None:
    wanted = [f"--format={name}=out/{name}" for name in FORMATS]
    assert crashcheck(project, environment, "--from", "report.json", *wanted) == (0, "", "")
    made = {name: (project / "out" / name).read_text("utf-8") for name in FORMATS}
    assert made["json"] == (project / "report.json").read_text("utf-8")
    assert "<!doctype html>" in made["html"][:50].lower()
    assert made["markdown"].startswith("### crashcheck: `token.valid` at src/level\\_hash.c:9 may persist before ")
    assert (
        "\n3 findings and 1 uncertain finding (1 failing state); 412 of 10⁷⁷ feasible crash states checked. "
        in made["markdown"]
    )
    assert json.loads(made["sarif"])["version"] == "2.1.0"
    assert ET.fromstring(made["junit"]).attrib["failures"] == "3"
    assert made["github"].startswith("::error file=")
    assert (
        "\n3 findings and 1 uncertain finding (1 failing state); 412 of 10^77 feasible crash states checked"
        in made["terminal"]
    )
    assert "entry->value = value;" in made["terminal"]


def test_the_report_may_be_read_from_standard_input(project: Path, environment: dict[str, str]) -> None:
    code, out, _ = crashcheck(project, environment, "--from", "-", "--format", "github", stdin=json_report.render(ONE))
    assert code == 0
    assert out.count("::error ") == 1


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, True),  # force-color.org: any value that is not empty; NO_COLOR turns colours off
        ({"FORCE_COLOR": ""}, False),
        ({"NO_COLOR": "0", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": "", "FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1", "GITHUB_ACTIONS": "true"}, False),
        ({"TTY_COMPATIBLE": "1"}, False),
        ({"GITHUB_ACTIONS": "true", "TERM": "dumb"}, True),
    ],
    ids=lambda value: " ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else None,
)
def test_where_there_is_no_terminal_only_a_log_that_wants_colours_has_escapes(
    project: Path, environment: dict[str, str], variables: dict[str, str], coloured: bool
) -> None:
    plain = {name: value for name, value in environment.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    done = run_crashcheck("report", "--from", "report.json", cwd=project, env={**plain, **variables})
    assert done.returncode == 0
    assert ("\x1b[" in done.stdout, "\x1b[31" in done.stdout or "\x1b[1;31" in done.stdout) == (coloured, coloured)
    # what is redrawn in place would be unreadable there
    assert not re.search(r"\x1b\[[0-9;?]*[A-HJKhl]", done.stdout)


def test_on_github_no_line_of_the_terminals_report_acts(project: Path, environment: dict[str, str]) -> None:
    (project / "hostile.json").write_text(json_report.render(hostile()), encoding="utf-8")
    on_github = {**environment, "GITHUB_ACTIONS": "true"}
    words = ["report", "--from", "hostile.json", "--format", "terminal", "--format", "github"]
    done = run_crashcheck(*words, cwd=project, env=on_github)
    assert done.returncode == 0
    # The order of two formats on one output: files first, then as they were named, the terminal's last.
    commands, _, quiet = done.stdout.partition("::stop-commands::")
    token = quiet.splitlines()[0]
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert quiet.endswith(f"\n::{token}::\n")
    assert quiet.count(token) == 2
    assert {row.split(" ")[0].split("::")[1] for row in commands.splitlines()} == {"error", "notice"}


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["--from", "none.json"], "report-unreadable"),
        (["--from", "src/level_hash.c"], "report-unreadable"),
        (["--from", "report.json", "--format", "pdf"], "bad-format"),
        (["--from", "report.json", "--format", "json=/dev/null/x"], "report-unwritable"),
        (["--from", "report.json", "--format", "github", "--diff", "nowhere"], "diff-git-failed"),
    ],
)
def test_what_cannot_be_done_is_reported(
    project: Path, environment: dict[str, str], arguments: list[str], slug: str
) -> None:
    code, out, err = crashcheck(project, environment, *arguments)
    assert (code, out) == (2, "")
    assert f"[{slug}]" in err


def test_on_github_no_line_of_an_error_acts(project: Path, environment: dict[str, str]) -> None:
    (project / "crashcheck.toml").write_text(
        '[build]\ncommand = "echo ::error::pwned; exit 1"\n[workload]\ncommand = "true"\n[pool]\nfiles = ["x"]\n'
        '[check]\ncommand = "true"\n'
    )
    done = run_crashcheck("run", cwd=project, env={**environment, "GITHUB_ACTIONS": "true"})
    assert done.returncode == 2
    progress = re.compile(r"crashcheck: building  \(.* s in this phase\)")  # where that takes ten seconds
    first, *rows = [row for row in done.stderr.splitlines() if not progress.fullmatch(row)]
    assert any(row.startswith("::error::pwned") for row in rows[:-1])
    token = first.removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert rows[-1] == f"::{token}::"


def test_with_a_diff_an_annotation_is_at_a_line_of_it(project: Path, environment: dict[str, str]) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *arguments], cwd=project, check=True
        )

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    source = project / "src" / "level_hash.c"
    source.write_text(source.read_text().replace("    sfence();\n", "    sfence(); /* here */\n"))
    (project / "report.json").write_text(json_report.render(ONE), encoding="utf-8")
    _, out, _ = crashcheck(project, environment, "--from", "report.json", "--format", "github", "--diff", "HEAD")
    # The store in line 9 is three lines above the change, so the diff shows it.
    assert out.startswith("::error file=src/level_hash.c,line=9,")
    git("commit", "-q", "-a", "-m", "second")
    (project / "new.c").write_text("\n")
    _, out, _ = crashcheck(project, environment, "--from", "report.json", "--format", "github", "--diff", "HEAD")
    assert "No line of its crash schedule" not in out
    assert out.startswith("::error file=src/level_hash.c,line=9,")
