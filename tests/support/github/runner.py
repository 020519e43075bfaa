"""Runs the steps of action.yml as GitHub's runner does, with a cache of its own: no installation, no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from support.github.fake_github import REPOSITORY, FakeGitHub
from support.paths import ROOT

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")


class Runner:
    """Jobs of one pull request and of pushes to its base; each has a home without caches."""

    def __init__(self, folder: Path, github: FakeGitHub, environment: Mapping[str, str]) -> None:
        self.folder, self.github = folder, github
        self.environment = environment
        self.crashcheck = shutil.which("crashcheck", path=environment["PATH"])
        self.caches: dict[str, Path] = {}  # in the order in which they were saved
        self.run_id = 0
        self.log = ""  # of the last job

    def job(self, workspace: Path, event_name: str, event: Mapping[str, Any], **variables: str) -> dict[str, str]:
        """The outputs of the action for one event; `variables`: further ones of GitHub's."""
        self.run_id += 1
        self.log = ""
        home = self.folder / f"home{self.run_id}"
        home.mkdir()
        (home / "event.json").write_text(json.dumps(event), encoding="utf-8")
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        known = {f"inputs.{name}": one.get("default", "") for name, one in action["inputs"].items()}
        known |= {"inputs.github-token": "ghs_x", "github.event_name": event_name, "toJSON(matrix)": "null"}
        known |= {"github.run_id": str(self.run_id), "github.run_attempt": "1"}
        here = {
            **self.environment,
            "XDG_CACHE_HOME": str(self.folder / "cache"),  # keys name folders below it
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": self.github.url,
            "GITHUB_EVENT_NAME": event_name,
            "GITHUB_EVENT_PATH": str(home / "event.json"),
            "GITHUB_JOB": "check",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_RUN_ID": str(self.run_id),
            "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
            "GITHUB_WORKSPACE": str(workspace),
            "RUNNER_TEMP": str(home),
            **variables,
        }
        for folder in ("failing", "results"):  # a fresh machine
            shutil.rmtree(Path(here["CRASHCHECK_CACHE"]) / folder, ignore_errors=True)
        for step in action["runs"]["steps"]:
            if self._runs(step.get("if", ""), known):
                given = {**step.get("with", {}), **step.get("env", {})}
                texts = {name: _filled(str(text), known) for name, text in given.items()}
                outputs = self._cached(step["uses"], texts) if "uses" in step else self._script(step, texts, here, home)
                known |= {f"steps.{step.get('id')}.outputs.{name}": text for name, text in outputs.items()}
        return {name: _filled(one["value"], known) for name, one in action["outputs"].items()}

    def _runs(self, condition: str, known: Mapping[str, str]) -> bool:
        if condition in ("", "always()"):
            return True
        return all(_holds(term.strip(), known) for term in condition.split("&&"))

    def _script(self, step: Mapping[str, Any], texts: Mapping[str, str], here: dict[str, str], home: Path) -> Any:
        outputs = home / "outputs"
        outputs.write_text("", encoding="utf-8")
        if " make " in step["run"]:  # what is installed is this checkout
            commands = Path(texts["FOLDER"]) / "venv" / "bin"
            commands.mkdir(parents=True, exist_ok=True)
            if not (commands / "crashcheck").exists():
                (commands / "crashcheck").symlink_to(str(self.crashcheck))
            return {}
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=here["GITHUB_WORKSPACE"],
            env={**here, **texts, "GITHUB_OUTPUT": str(outputs)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        self.log += done.stdout
        return dict(row.split("=", 1) for row in outputs.read_text(encoding="utf-8").splitlines())

    def _cached(self, uses: str, texts: Mapping[str, str]) -> dict[str, str]:
        """What the actions of others do: a cache is found by its key, else the newest by a prefix of it."""
        name, path, key = uses.partition("@")[0], Path(texts.get("path", "").split("\n")[0]), texts.get("key", "")
        if name == "actions/setup-python":
            return {"python-path": shutil.which("python3", path=self.environment["PATH"]) or ""}
        if name == "actions/cache/restore":
            prefix = texts.get("restore-keys", "").strip()
            hits = [key] if key in self.caches else [one for one in self.caches if prefix and one.startswith(prefix)]
            if hits and not path.exists():
                shutil.copytree(self.caches[hits[-1]], path)
            return {"cache-hit": "true" if hits == [key] else ""}
        if name == "actions/cache/save" and path.is_dir() and key not in self.caches and "*" not in str(path):
            self.caches[key] = self.folder / f"kept{len(self.caches)}"
            shutil.copytree(path, self.caches[key])
        return {"artifact-url": "https://github.com/x"} if name == "actions/upload-artifact" else {}


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda match: _value(match[1].strip(), known), text)


def _value(expression: str, known: Mapping[str, str]) -> str:
    parts = [part.strip() for part in expression.split("||")]
    values = [part[1:-1] if part.startswith("'") else known.get(part, "") for part in parts]
    return next(filter(None, values), "")


def _holds(term: str, known: Mapping[str, str]) -> bool:
    for sign in ("==", "!="):
        if sign in term:
            left, right = (_value(side.strip(), known) for side in term.split(sign))
            return (left == right) == (sign == "==")
    return bool(_value(term, known))


def merge_of(origin: Path, folder: Path, number: int) -> Path:
    """A clone as actions/checkout makes it, of the merge that GitHub has made: two commits deep."""
    workspace = folder / f"workspace{number}"
    os.makedirs(workspace)
    fetch = ("fetch", "-q", "--depth=2", f"file://{origin}", "+refs/pull/7/merge:refs/remotes/pull/7/merge")
    for words in (("init", "-q"), fetch, ("checkout", "-q", "--detach", "refs/remotes/pull/7/merge")):
        subprocess.run(["git", "-C", str(workspace), *words], check=True)
    return workspace
