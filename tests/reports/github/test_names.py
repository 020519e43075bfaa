"""The documents, the workflows and action.yml name the same inputs and outputs: linters overlook a misspelt one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.paths import ROOT

GUIDE = ROOT / "docs" / "github.md"
POST = ROOT / "post" / "action.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def action() -> Any:
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def blocks(document: Path) -> list[str]:
    """The YAML in a document."""
    return re.findall(r"^```yaml\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def named_inputs(text: str) -> set[str]:
    """What steps that use this action, here or from elsewhere, give it."""
    found: set[str] = set()
    for step in steps(yaml.safe_load(text)):
        if re.match(r"\./?$|[^/\s]+/crashcheck@", str(step.get("uses", ""))):
            found |= set(step.get("with", {}))
    return found


def steps(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return ([value] if "uses" in value else []) + [one for inner in value.values() for one in steps(inner)]
    return [one for inner in value for one in steps(inner)] if isinstance(value, list) else []


def tables(document: Path) -> set[str]:
    """The names in the first columns of the guide's two tables."""
    rows = re.findall(r"^\| (`[^|]*`) \|", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_guides_tables_list_every_input_and_output_and_no_other() -> None:
    assert tables(GUIDE) == set(action()["inputs"]) | set(action()["outputs"])


@pytest.mark.parametrize("document", [GUIDE, ROOT / "README.md"], ids=lambda path: path.name)
def test_every_input_in_a_workflow_of_the_documents_exists(document: Path) -> None:
    used = [named_inputs(block) for block in blocks(document) if "uses:" in block]
    assert used != []
    assert set().union(*used) <= set(action()["inputs"])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_input_and_output_in_a_workflow_exists(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    assert named_inputs(text) <= set(action()["inputs"])
    if workflow.name == "action.yml":
        assert set(re.findall(r"steps\.(?:buggy|fixed)\.outputs\.([a-z-]+)", text)) == set(action()["outputs"])


def test_every_input_reaches_a_script_through_the_environment_and_none_its_text() -> None:
    made = action()
    used: set[str] = set()
    for step in made["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        for value in step.get("env", {}).values():
            used |= set(re.findall(r"inputs\.([a-z-]+)", value))
    assert used == set(made["inputs"])


@pytest.mark.parametrize("file", [ROOT / "action.yml", POST, *WORKFLOWS, GUIDE], ids=lambda path: path.name)
def test_actions_of_others_are_pinned_by_hash_with_their_version_beside(file: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", file.read_text(encoding="utf-8"))
    others = [(name, rest) for name, rest in used if not name.startswith(("./", "OWNER/"))]
    assert [name for name, rest in others if not re.search(r"@[0-9a-f]{40}$", name) or "# v" not in rest] == []


def test_one_action_has_one_pin_everywhere() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "action.yml", POST, GUIDE, *WORKFLOWS)]
    pins = {(name, pin) for text in texts for name, pin in re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40})", text)}
    assert len(pins) == len({name for name, _ in pins})
