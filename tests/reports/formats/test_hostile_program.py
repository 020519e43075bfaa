"""A program whose names and output try to act in reports is built and run for real: no report is broken or tricked."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft202012Validator

from crashcheck.analyzer.compile.driver.toolchain import find_compiler
from crashcheck.cli.report import FORMATS
from crashcheck.reports.formats import json_report
from support.command_line import run_crashcheck
from support.paths import EXAMPLES

from .test_markdown import MADE, Page
from .test_sarif import SCHEMA
from .test_workflow_commands import read

EXAMPLE = EXAMPLES / "level-hash"
NAME = b"::error::<script>alert(1)<b>[x](javascript:1)`@octocat`#1,%0A\x1b[31m\xff|.c"
if find_compiler().zig:
    NAME = NAME.replace(b":", b";")  # it compiles no file with a colon in its name, whose make rule it reads
OUTPUT = (
    "\\n::error file=x::pwned\\n##[error]pwned\\n<script>alert(1)</script>\\n![x](http://evil.example/p.png)\\n-->\\n"
    "</details>\\n```\\n@octocat #1\\n\\033[31mred\\033]0;title\\007\\n\\377\\376\\n]]>\\n\\000\\n"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "<img src=x> ::warning:: `p`"
    folder.mkdir()
    for name in ("table.h", "check.c"):
        shutil.copy(EXAMPLE / name, folder / name)
    source = os.fsencode(folder) + b"/" + NAME
    Path(os.fsdecode(source)).write_bytes((EXAMPLE / "buggy.c").read_bytes())
    (folder / "build.sh").write_bytes(
        b"set -e\ncrashcheck-cc -O1 -g -o workload -x c './" + NAME.replace(b"'", b"'\\''") + b"'\n"
        b"crashcheck-cc -O1 -g -o check check.c\n"
    )
    (folder / "check.sh").write_text(
        f"./check \"$@\" && exit 0\nprintf '{OUTPUT}'\nhead -c 10000000 /dev/zero | tr '\\0' x\nexit 1\n"
    )
    (folder / "crashcheck.toml").write_text(
        """
[build]
command = "sh build.sh"
[setup]
command = "./workload create '{pool}/t::error::<b>.pm'"
[workload]
command = "./workload run '{pool}/t::error::<b>.pm'"
[pool]
files = ["t::error::<b>.pm"]
[check]
command = "sh check.sh '{pool}/t::error::<b>.pm' {acked}"
[model]
name = "px86"
"""
    )
    return folder


def test_no_report_is_broken_or_tricked(project: Path, environment: dict[str, str]) -> None:
    wanted = [f"--format={name}=out/{name}" for name in FORMATS]
    words = ["run", *wanted, "--format", "terminal", "--format", "github"]
    done = run_crashcheck(*words, cwd=project, env={**environment, "GITHUB_ACTIONS": "true"})
    assert done.returncode == 1, done.stderr
    made = {name: (project / "out" / name).read_bytes().decode("utf-8") for name in FORMATS}
    assert {name for name, text in made.items() if len(text) > 1_000_000} == set()
    for name, text in made.items():
        # Where characters are escaped, they are data; elsewhere none may reach a terminal or a page.
        if name != "json":
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), name

    (finding,) = json_report.load(made["json"]).findings
    assert finding.location.file == NAME.decode("utf-8", "replace")
    assert "pwned" in finding.evidence.verdict.output

    commands, _, quiet = done.stdout.partition("::stop-commands::")
    assert [read(row)[0] for row in commands.splitlines()] == ["error"]
    assert quiet.rstrip("\n").endswith(f"::{quiet.splitlines()[0]}::")
    assert commands == made["github"]

    page = Page(made["markdown"])
    assert page.open == []
    assert set(page.tags) <= MADE
    assert not re.search(r"@\w|://", page.plain)

    document = json.loads(made["sarif"])
    Draft202012Validator(SCHEMA).validate(document)
    (result,) = document["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert re.fullmatch(r"[A-Za-z0-9%._~/-]+", uri)

    suite = ET.fromstring(made["junit"])
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("2", "1")
    assert "<script>alert" not in made["html"]
    assert "<img src=x>" not in made["html"]
