"""The documents name only what there is: linked files, make targets, sub-commands and options."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from crashcheck import cli

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "examples" / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_linked_file_exists(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith(("http://", "https://"))]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_the_readme_opens_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^make [a-z]+", text, re.MULTILINE)
    assert commands[:2] == ["make crashcheck", "make test"]


def test_make_help_lists_every_target_that_a_user_may_call() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"^  make ([a-z-]+) ", done.stdout, re.MULTILINE) == phony.split()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_option_of_crashcheck_run_that_a_document_uses_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    known = cli.build_parser()
    for line in re.findall(r"^crashcheck (.*?)(?:#.*)?$", text, re.MULTILINE):
        words = line.replace("TOKEN", "cc1-token").split()
        if words and words[0] in cli.SUBCOMMANDS and not any(mark in line for mark in "[<…|"):
            known.parse_args(words)  # exits on what it does not know
