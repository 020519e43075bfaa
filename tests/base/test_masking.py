"""No report holds a secret of the job, and no command of a configuration inherits the keys of its services."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.cli.report import FORMATS, write_reports
from crashcheck.masking import Mask, inherited_environment
from crashcheck.reports.formats import json_report
from support.command_line import run_crashcheck
from support.reports.runs import LEVEL_HASH, run, with_fields

SECRETS = {
    "DEPLOY_TOKEN": "hunter2-hunter2",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
    "ACTIONS_RUNTIME_URL": "https://pipelines.example/0123",
    "db_password": "first line\nsecond line",
    "SHORT_TOKEN": "1234567",
    "EDITOR": "hunter2-hunter2-not",
    "PWD": "/home/runner",
}
KEYS = (
    "ghs_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdef",
    "sk-proj-abcdefghijklmnopqrstuvwx",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
)
INNOCENT = (
    "crash:aiaaaamspdft26udb7jaeaycah6cwdzw",
    "3f2c1ab" * 5,
    "sk_buff",
    "key=0x7fea00000000",
    "token.valid = 01",
)


@pytest.mark.parametrize("text", KEYS)
def test_what_looks_like_a_key_is_masked_whatever_the_environment_holds(text: str) -> None:
    assert Mask({}).text(f"a {text} b") == "a *** b"


@pytest.mark.parametrize("text", INNOCENT)
def test_a_token_of_a_replay_a_hash_and_a_field_are_no_keys(text: str) -> None:
    assert Mask(SECRETS).text(text) == text


def test_values_of_secret_variables_are_masked_by_each_line_and_short_values_are_not() -> None:
    mask = Mask(SECRETS)
    assert mask.text("hunter2-hunter2 at https://pipelines.example/0123") == "*** at ***"
    assert mask.text("second line|first line") == "***|***"
    assert mask.text("1234567 in /home/runner") == "1234567 in /home/runner"
    assert mask.text("postgres://me:swordfish@db/x") == "postgres://***@db/x"


def test_no_format_of_a_report_holds_a_secret_that_the_check_printed_or_a_source_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = SECRETS["DEPLOY_TOKEN"]
    monkeypatch.setenv("DEPLOY_TOKEN", secret)
    monkeypatch.setenv("STATE_TOKEN", "persisted")  # a word that a report's reader needs
    (tmp_path / "src").mkdir()
    rows = [f'login("{secret}");'] * 20
    (tmp_path / "src" / "level_hash.c").write_text("\n".join(rows), encoding="utf-8")
    verdict = replace(LEVEL_HASH.evidence.verdict, output=f"connecting with {secret}\n{KEYS[0]}\n")
    place = replace(LEVEL_HASH.location, text=rows[0])
    result = run(with_fields(LEVEL_HASH, verdict=verdict, location=place, message=f"{LEVEL_HASH.message} {secret}"))
    for name in FORMATS:
        write_reports(result, tmp_path, [(name, tmp_path / name)])
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert (secret in text, KEYS[0] in text) == (False, False), name
    read = json_report.load((tmp_path / "json").read_text(encoding="utf-8"))
    assert [(one.id, one.replay) for one in read.findings] == [(LEVEL_HASH.id, LEVEL_HASH.replay)]
    assert [step.state for step in read.findings[0].evidence.schedule] == [
        step.state for step in LEVEL_HASH.evidence.schedule
    ]
    assert json.loads((tmp_path / "sarif").read_text())["version"] == "2.1.0"


def test_commands_inherit_no_variable_of_the_jobs_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "x")
    monkeypatch.setenv("CRASHCHECK_CACHE", "y")
    assert "ACTIONS_RUNTIME_TOKEN" not in inherited_environment()
    assert inherited_environment()["CRASHCHECK_CACHE"] == "y"
    assert "CRASHCHECK_CACHE" not in inherited_environment("CRASHCHECK_")


CALLS = """[build]
command = "env >build.env"
[setup]
command = "env >setup.env"
[workload]
command = "sh -c 'env >workload.env; echo 1 >{pool}/a'"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = "sh -c 'env >check.env'"
[model]
name = "ext4"
"""
OF_NODES = """[[node]]
name = "only"
command = "sh -c 'env >PLACE/node.env'"
ends = true
[check]
end = "sh -c 'env >PLACE/node-check.env'"
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [(CALLS, ("build", "setup", "workload", "check")), (OF_NODES, ("node", "node-check"))],
    ids=["calls", "nodes"],
)
def test_no_command_of_a_configuration_sees_the_keys_to_the_jobs_services(
    tmp_path: Path, environment: dict[str, str], text: str, names: tuple[str, ...]
) -> None:
    (tmp_path / "crashcheck.toml").write_text(text.replace("PLACE", str(tmp_path)), encoding="utf-8")
    run_crashcheck("run", cwd=tmp_path, env={**environment, "ACTIONS_RUNTIME_TOKEN": "x", "OWN_VARIABLE": "y"})
    for name in names:
        seen = (tmp_path / f"{name}.env").read_text(encoding="utf-8")
        assert ("ACTIONS_" in seen, "OWN_VARIABLE=y" in seen) == (False, True), name
