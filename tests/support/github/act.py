"""The action as a pull request runs it: by act, on this machine, with stand-ins for what GitHub keeps elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from support.github.fake_github import HEAD, REPOSITORY, FakeGitHub
from support.github.tools import python_tool
from support.paths import ROOT

_WORKFLOW = """
on: [pull_request, push]
jobs:
  check:
    runs-on: ubuntu-latest
    strategy:
      max-parallel: 1
      matrix:
        model: MODELS
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # act copies the folder instead
      - id: crash
        continue-on-error: true
        uses: ./
        with:
          config: CONFIG
          working-directory: FOLDER
          model: ${{ matrix.model }}
          budget: 120s
          check-run: always
      - env:
          OUTPUTS: ${{ toJSON(steps.crash.outputs) }}
          OUTCOME: ${{ steps.crash.outcome }}
          SARIF: ${{ steps.crash.outputs.sarif-file }}
          HTML: ${{ steps.crash.outputs.report-html }}
        run: |
          echo "$OUTPUTS" > "$SEEN/outputs.json"
          echo "$OUTCOME" > "$SEEN/outcome"
          cp "$SARIF" "$SEEN/report.sarif" || true
          cp "$HTML" "$SEEN/report.html" || true
"""
LEDGER = "ledger"  # the folder of the program that a pull request changes


def workflow(folder: str, config: str = "crashcheck.toml", models: str = '["px86"]') -> str:
    """A workflow that runs this checkout's action on a folder's configuration."""
    return _WORKFLOW.replace("MODELS", models).replace("CONFIG", config).replace("FOLDER", folder)


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

    def commit(self, files: Mapping[str, str]) -> None:
        """Commit files of the ledger's folder; all others there are removed."""
        folder = self.checkout / LEDGER
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "A version")

    def pull_request(self, base: Mapping[str, str], change: Mapping[str, str], github: FakeGitHub) -> None:
        """Two versions of the ledger: what pull request 7 is based on, and what it makes of that."""
        self.commit(base)
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.commit(change)
        github.files.clear()
        diff = subprocess.run(["git", "diff", "HEAD~1"], cwd=self.checkout, capture_output=True, text=True, check=True)
        for part in diff.stdout.split("diff --git ")[1:]:
            name = part.split(" b/", 1)[1].split("\n", 1)[0]
            github.change(name, "@@" + part.split("\n@@", 1)[1].rstrip("\n") if "\n@@" in part else "")

    def without_base(self) -> None:
        """The checkout knows no commit of the base, as one of depth 1."""
        self.git("update-ref", "-d", "refs/remotes/origin/main")

    def push(self, files: Mapping[str, str]) -> None:
        """A version of the ledger as main has it; the next run is of it."""
        self.commit(files)
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")

    def run(self, workflow: str, github: FakeGitHub, head: str = REPOSITORY, event_name: str = "pull_request") -> str:
        """Act's log of the workflow file `workflow` on pull request 7 from repository `head`, or on a push."""
        for old in self.seen.iterdir():
            old.unlink()
        shutil.rmtree(self.checkout / LEDGER / ".crashcheck", ignore_errors=True)  # a job has a fresh checkout
        subprocess.run(["git", "clean", "-xfdq", LEDGER], cwd=self.checkout, check=True)
        if event_name == "pull_request":
            self.git("add", "-A")
            self.git("commit", "-q", "--allow-empty", "-m", "A change")
        sides = {
            "head": {"sha": HEAD, "ref": "change", "repo": {"full_name": head}},
            "base": {"sha": "d" * 40, "ref": "main", "repo": {"full_name": REPOSITORY}},
        }
        event = self.folder / "event.json"
        told = {"number": 7, "pull_request": {"number": 7, **sides}} if event_name == "pull_request" else {}
        event.write_text(json.dumps(told), encoding="utf-8")
        environment = {"GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": REPOSITORY, "SEEN": str(self.seen)}
        command = [str(python_tool("act")), event_name, "-W", workflow, "-e", str(event), *self.options]
        command += ["-P", "ubuntu-latest=-self-hosted", "--no-cache-server", "--pull=false", "-s", "GITHUB_TOKEN=ghs_x"]
        for name, value in environment.items():
            command += ["--env", f"{name}={value}"]
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # what is installed runs
        done = subprocess.run(
            command,
            cwd=self.checkout,
            env={**outside, "HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / ".cache")},
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


def commands(log: str) -> list[str]:
    """The workflow commands that were obeyed."""
    return re.findall(r"[❗🚧❔]\s+(::(?:error|warning|notice).*)", log)
