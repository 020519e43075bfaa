"""The cache of compiled templates: used where it can be, never needed, and never stale."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import Environment

from crashcheck.reports.formats import templates

NAME = "graph.html.j2"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRASHCHECK_CACHE", str(tmp_path / "a cache"))
    return tmp_path / "a cache"


def compiled_afresh(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The names of the templates that are compiled from now on."""
    names: list[str | None] = []
    compile_ = Environment.compile

    def compile_and_note(self: Environment, source: str, name: str | None = None, *rest: object) -> object:
        names.append(name)
        return compile_(self, source, name, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(Environment, "compile", compile_and_note)
    return names


def test_a_template_is_compiled_once_for_all_environments(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_afresh(monkeypatch)
    for _ in range(2):
        templates.environment().get_template(NAME)
    assert compiled == [NAME]
    assert len(list(cache.glob("templates-*/*"))) == 1


def test_a_damaged_file_is_compiled_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    templates.environment().get_template(NAME)
    (kept,) = cache.glob("templates-*/*")
    whole = kept.read_bytes()
    compiled = compiled_afresh(monkeypatch)
    for damaged in (b"", whole[:100], b"no code"):
        kept.write_bytes(damaged)
        templates.environment().get_template(NAME)
        assert kept.read_bytes() == whole
    assert compiled == [NAME] * 3


def test_a_folder_that_cannot_be_written_is_no_error(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert templates.environment().get_template(NAME).name == NAME


def test_code_that_may_have_changed_a_filter_has_a_cache_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "_REPORTS", tmp_path)
    keys = set()
    for text in ("one", "another"):
        (tmp_path / "filters.py").write_text(text)
        keys.add(templates._key.__wrapped__())
    assert len(keys) == 2
