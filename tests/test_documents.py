"""The documents name only what there is: linked files, make targets, sub-commands and options."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from crashcheck import cli, config
from crashcheck.analyzer.compile.driver import toolchain

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "examples").rglob("README.md"), *(ROOT / "docs").glob("*.md")])
WINGS = ("analyzer", "runtime", "checker", "reports")
NUMBERS = (*("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),)
PHRASES_IN_CODE = 1  # uses of avoided phrases in code (docs/phrases.py): lower it when there are fewer


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_linked_file_exists(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith(("http://", "https://"))]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_the_readme_opens_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^make [a-z]+", text, re.MULTILINE)
    assert commands[:2] == ["make crashcheck", "make test"]


def test_the_readme_names_the_versions_and_settings_that_there_are() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in text
    assert f"A clang from {toolchain.OLDEST} to {toolchain.NEWEST} is used" in text
    settings, nodes = re.findall(r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert config.parse(nodes, ROOT / "crashcheck.toml").nodes
    assert f"{NUMBERS[sum(map(len, tomllib.loads(settings).values()))]} lines matter" in text
    bugs = re.findall(r"^\| ([^|]*?) [\d., ]+\| \[", (ROOT / "docs" / "found.md").read_text(), re.MULTILINE)
    assert f"found {len(bugs)} bugs in {len(set(bugs))} programs that others wrote" in text


def test_make_help_lists_every_target_that_a_user_may_call() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"^  make ([a-z0-9-]+) ", done.stdout, re.MULTILINE) == phony.split()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_option_of_crashcheck_run_that_a_document_uses_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    known = cli.build_parser()
    for line in re.findall(r"^crashcheck (.*?)(?:#.*)?$", text, re.MULTILINE):
        words = line.replace("TOKEN", "crash:token").split()
        if words and words[0] in cli.SUBCOMMANDS and not any(mark in line for mark in "[<…|"):
            known.parse_args(words)  # exits on what it does not know


def in_backticks(document: str) -> list[str]:
    """The code spans of a document in docs/, outside of code blocks."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def test_every_path_that_the_architecture_names_exists() -> None:
    paths = [span for span in in_backticks("architecture.md") if re.fullmatch(r"[\w.-]+(/[\w.-]*)+", span)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_architecture_names_every_room() -> None:
    files = [path for wing in WINGS for path in (ROOT / wing).rglob("*") if path.suffix not in (".pyc", "")]
    rooms = {path.parent.relative_to(ROOT).as_posix() for path in files} - {"analyzer", "checker", "reports"}
    rooms = {room for room in rooms if not room.startswith("runtime/include/")}  # these mirror the rooms of the C
    assert sorted(rooms - set(in_backticks("architecture.md"))) == []


def test_every_module_that_a_comment_names_exists() -> None:
    sources = [
        path for wing in WINGS for path in sorted((ROOT / wing).rglob("*")) if path.suffix in (".py", ".c", ".h")
    ]
    paths = [f"/{path.relative_to(ROOT)}" for path in sources]
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources
        for name in re.findall(
            r"(?:#|^ *\*|\"\"\"|\().*?\b([a-z_]+(?:/[a-z_]+)*\.py)\b", path.read_text(encoding="utf-8"), re.M
        )
        if not any(each.endswith(f"/{name}") for each in paths)
    ]
    assert missing == []


def test_every_name_of_the_glossary_is_in_the_code() -> None:
    header = (ROOT / "runtime" / "include" / "trace_format.h").read_text(encoding="utf-8")
    spans = in_backticks("glossary.md")
    constants = {span for span in spans if span.startswith("CC_") and span != "CC_"}
    assert constants - set(re.findall(r"\bCC_\w+", header)) == set()
    names = [span for span in spans if span.split(".")[0] in WINGS and "/" not in span]
    assert len(names) > 30
    assert [name for name in names if not importable(name)] == []


def importable(name: str) -> bool:
    """Whether this is a module under crashcheck, or a name in one."""
    try:
        importlib.import_module(f"crashcheck.{name}")
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return hasattr(importlib.import_module(f"crashcheck.{module}"), last)
    return True


def test_the_index_lists_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", index, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_linked_heading_exists(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text(encoding="utf-8"))
    missing = [
        f"{file}#{anchor}"
        for file, anchor in links
        if not file.startswith("http") and anchor not in anchors(document.parent / file if file else document)
    ]
    assert missing == []


def anchors(document: Path) -> set[str]:
    """The names by which GitHub links to the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def phrases() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "docs" / "phrases.py")], capture_output=True, text=True)


def test_no_document_and_no_template_has_a_phrase_to_avoid(phrases: subprocess.CompletedProcess[str]) -> None:
    assert phrases.stderr.splitlines() == []
    assert phrases.returncode == 0


def test_the_code_has_no_more_phrases_to_avoid_than_it_had(phrases: subprocess.CompletedProcess[str]) -> None:
    last = phrases.stdout.splitlines()[-1].split()
    assert last[0] == "code"
    assert int(last[1]) <= PHRASES_IN_CODE


def test_start_here_leads_to_the_finding_that_it_shows(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "start-here.md").read_text(encoding="utf-8")
    files = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["store.c", "check.py", "crashcheck.toml"]
    for name, content in files:
        (tmp_path / name).write_text(content, encoding="utf-8")
    (shown,) = re.findall(r"^```\n(.*)\n```", text, re.MULTILINE)
    found = crashcheck(tmp_path, "run")
    assert found.returncode == 1
    assert shown in found.stdout
    assert "1 finding; " in found.stdout
    example = (ROOT / "README.md").read_text(encoding="utf-8").split("```\n")[1]
    message, *lines = example.splitlines()
    assert message == shown
    assert [line.split()[0] for line in lines] == ["crash", "check", "fix", "replay"]
    *texts, replay = (" ".join(line.split()[1:]) for line in lines)
    assert [text for text in texts if text not in found.stdout] == []
    assert replay.split()[:-1] == ["crashcheck", "replay"]  # the token depends on the compiler
    fixed = crashcheck(tmp_path, "fix", "--apply", "--verify")
    assert fixed.returncode == 0
    assert "No findings" in fixed.stdout


def crashcheck(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crashcheck", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
