"""The action, run from this checkout by act on this machine: what a pull request and one from a fork get to see."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.github.fake_github import HEAD, REPOSITORY, FakeGitHub
from support.github.tools import python_tool
from support.paths import ROOT

pytestmark = pytest.mark.slow

WORKFLOW = """
on: pull_request
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # act copies the folder instead
      - id: crash
        continue-on-error: true
        uses: ./
        with:
          config: CONFIG
          working-directory: examples/level-hash
          budget: 120s
          check-run: always
      - env:
          OUTPUTS: ${{ toJSON(steps.crash.outputs) }}
          OUTCOME: ${{ steps.crash.outcome }}
          SARIF: ${{ steps.crash.outputs.sarif-file }}
        run: |
          echo "$OUTPUTS" > "$SEEN/outputs.json"
          echo "$OUTCOME" > "$SEEN/outcome"
          cp "$SARIF" "$SEEN/report.sarif" || true
"""
# What GitHub keeps elsewhere, and act would have to fetch: each does here what the action relies on.
STAND_INS = {
    "actions/setup-python": f"""
name: setup-python
description: passes on this interpreter
inputs: {{python-version: {{description: x}}, update-environment: {{description: x}}}}
outputs: {{python-path: {{description: x, value: "${{{{ steps.it.outputs.python-path }}}}"}}}}
runs:
  using: composite
  steps:
    - id: it
      shell: bash
      run: echo 'python-path={sys.executable}' >> "$GITHUB_OUTPUT"
""",
    "actions/cache/restore": """
name: restore
description: finds nothing; the folder stays on this machine
inputs: {key: {description: x, required: true}, path: {description: x, required: true}}
outputs: {cache-hit: {description: x, value: ""}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {KEY: "${{ inputs.key }}"}
      run: echo "cache looked up $KEY"
""",
    "actions/cache/save": """
name: save
description: keeps nothing
inputs: {key: {description: x, required: true}, path: {description: x, required: true}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {KEY: "${{ inputs.key }}"}
      run: echo "cache saved $KEY"
""",
    "actions/upload-artifact": """
name: upload-artifact
description: lists what would be uploaded
inputs: {name: {description: x, required: true}, path: {description: x, required: true}}
outputs: {artifact-url: {description: x, value: "${{ steps.it.outputs.artifact-url }}"}}
runs:
  using: composite
  steps:
    - id: it
      shell: bash
      env: {WHERE: "${{ inputs.path }}"}
      run: |
        ls "$WHERE" | sed 's/^/artifact /'
        echo "artifact-url=https://github.com/octo/storage/actions/runs/1/artifacts/2" >> "$GITHUB_OUTPUT"
""",
}


class Act:
    """A copy of this checkout as a repository, and what act does in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        self.seen = folder / "seen"
        self.home = folder / "home"
        for made in (self.checkout, self.seen, self.home):
            made.mkdir()
        known = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(known, cwd=ROOT, capture_output=True, check=True).stdout
        names = [name for name in listed.split(b"\0") if name and os.path.lexists(ROOT / os.fsdecode(name))]
        packed = subprocess.run(
            ["tar", "--null", "-T", "-", "-cf", "-"], cwd=ROOT, input=b"\0".join(names), capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-xf", "-"], cwd=self.checkout, input=packed, check=True)
        self.git("init", "-q", "-b", "main")
        self.options: list[str] = []
        for name, text in STAND_INS.items():
            where = folder / name
            where.mkdir(parents=True)
            (where / "action.yml").write_text(text, encoding="utf-8")
            owner, repository = name.split("/")[:2]
            option = f"{owner}/{repository}@{pinned()[name]}={folder / owner / repository}"
            if option not in self.options:
                self.options += ["--local-repository", option]

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=octocat", "-c", "user.email=octocat@example.org")
        subprocess.run(["git", *who, *arguments], cwd=self.checkout, check=True)

    def run(self, workflow: str, github: FakeGitHub, head: str = REPOSITORY) -> str:
        """Act's log of the workflow file `workflow` on pull request 7 from repository `head`."""
        for old in self.seen.iterdir():
            old.unlink()
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "A change")
        sides = {
            "head": {"sha": HEAD, "ref": "change", "repo": {"full_name": head}},
            "base": {"sha": "d" * 40, "ref": "main", "repo": {"full_name": REPOSITORY}},
        }
        event = self.folder / "event.json"
        event.write_text(json.dumps({"number": 7, "pull_request": {"number": 7, **sides}}), encoding="utf-8")
        environment = {"GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": REPOSITORY, "SEEN": str(self.seen)}
        command = [str(python_tool("act")), "pull_request", "-W", workflow, "-e", str(event), *self.options]
        command += ["-P", "ubuntu-latest=-self-hosted", "--no-cache-server", "--pull=false", "-s", "GITHUB_TOKEN=ghs_x"]
        for name, value in environment.items():
            command += ["--env", f"{name}={value}"]
        done = subprocess.run(
            command,
            cwd=self.checkout,
            env={**os.environ, "HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / ".cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
        log = done.stdout.decode("utf-8", "replace")
        print(log)  # shown where a test fails
        return log

    def outputs(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.seen / "outputs.json").read_text(encoding="utf-8"))
        return found

    def outcome(self) -> str:
        return (self.seen / "outcome").read_text(encoding="utf-8").strip()


def pinned() -> dict[str, str]:
    """The actions that action.yml uses: name → commit."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    return dict(step["uses"].split("@") for step in steps if "uses" in step)


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Act:
    made = Act(tmp_path_factory.mktemp("act"))
    for config in ("buggy", "broken"):
        path = made.checkout / ".github" / "workflows" / f"try-{config}.yml"
        path.write_text(WORKFLOW.replace("CONFIG", f"{config}.toml"), encoding="utf-8")
    example = made.checkout / "examples" / "level-hash"
    text = (example / "buggy.toml").read_text(encoding="utf-8")
    broken = re.sub(r'command = "make.*"', """command = "printf '::error::gotcha\\\\n' && false" """, text, count=1)
    (example / "broken.toml").write_text(broken, encoding="utf-8")
    return made


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        fake.change("examples/level-hash/buggy.c", "@@ -42,2 +42,2 @@\n-x\n+y\n         bucket->valid[i] = 1;")
        yield fake
        assert fake.broken == []


def commands(log: str) -> list[str]:
    """The workflow commands that were obeyed."""
    return re.findall(r"❗\s+(::(?:error|warning|notice).*)", log)


def test_a_pull_request_gets_annotations_a_summary_a_comment_and_a_check_run(act: Act, github: FakeGitHub) -> None:
    log = act.run(".github/workflows/try-buggy.yml", github)
    assert act.outcome() == "failure"
    outputs = act.outputs()
    assert (outputs["findings"], outputs["new-findings"], outputs["conclusion"]) == ("1", "1", "failure")
    assert os.path.basename(outputs["report-html"]) == "report.html"
    (error,) = commands(log)
    assert error.startswith("::error file=examples/level-hash/buggy.c,line=43,title=crashcheck")
    assert "Summary - ### crashcheck: `" in log
    assert "1 finding in 121 of 121 feasible crash states" in log
    sarif = json.loads((act.seen / "report.sarif").read_text(encoding="utf-8"))
    (result,) = sarif["runs"][0]["results"]
    where = result["locations"][0]["physicalLocation"]
    assert (where["artifactLocation"]["uri"], where["region"]["startLine"]) == ("examples/level-hash/buggy.c", 43)
    (comment,) = github.comments
    assert "buggy.c:43" in comment["body"]
    assert "https://github.com/octo/storage/actions/runs/1/artifacts/2" in comment["body"]
    (run,) = github.check_runs
    assert (run["head_sha"], run["conclusion"]) == (HEAD, "failure")
    kept = set(re.findall(r"artifact (report\S+)", log))
    assert kept == {"report.html", "report.json", "report.md", "report.sarif"}


def test_a_second_run_installs_nothing_and_updates_the_comment(act: Act, github: FakeGitHub) -> None:
    act.run(".github/workflows/try-buggy.yml", github)
    log = act.run(".github/workflows/try-buggy.yml", github)
    assert "cache looked up crashcheck-Linux-X64-" in log
    assert "crashcheck is installed in" in log
    assert len(github.comments) == 1


def test_on_a_fork_everything_is_reported_that_needs_no_permission(act: Act, github: FakeGitHub) -> None:
    github.read_only = {"comments", "checks", "reviews"}
    log = act.run(".github/workflows/try-buggy.yml", github, head="mallory/storage")
    assert act.outcome() == "failure"
    assert act.outputs()["conclusion"] == "failure"
    assert len(commands(log)) == 1
    assert "Summary - ### crashcheck: `" in log
    assert "1 finding in 121 of 121 feasible crash states" in log
    assert log.count("The token may not write the comment and the check run, as on a pull request from a fork") == 1
    assert github.comments == github.check_runs == []


def test_a_build_that_fails_ends_in_an_error_and_its_output_gives_no_commands(act: Act, github: FakeGitHub) -> None:
    log = act.run(".github/workflows/try-broken.yml", github)
    assert act.outcome() == "failure"
    assert act.outputs()["conclusion"] == "error"
    assert "gotcha" in log
    assert commands(log) == [
        "::error title=crashcheck::crashcheck failed (exit code 2); the log of this step shows the reason."
    ]


def test_this_projects_own_workflow_passes(act: Act, github: FakeGitHub) -> None:
    log = act.run(".github/workflows/action.yml", github)
    assert "Job succeeded" in log
