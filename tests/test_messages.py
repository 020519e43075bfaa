"""Every message for users has its entry in docs/messages.md, and every entry its message."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def slugs_in_code() -> dict[str, str]:
    """Each slug that an error for users may carry, with where. A slug is always a literal."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources()}
    names = {"CrashcheckError", "Trouble", *errors_of(trees.values())}
    found: dict[str, str] = {}
    for path, tree in trees.items():
        for call in calls_of(tree, names):
            # A Trouble is an error on its way from a worker process: its slug comes second, and is passed on as it is.
            slug = call.args[1 if getattr(call.func, "id", "") == "Trouble" else 0]
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            if isinstance(slug, ast.Attribute) and slug.attr == "slug":
                continue
            for choice in literals(slug, tree):
                assert isinstance(choice, ast.Constant), f"{where}: the slug is no literal"
                found[str(choice.value)] = where
    return found


def errors_of(trees: Iterable[ast.Module]) -> Iterator[str]:
    for tree in trees:
        for node in ast.walk(tree):
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            if any(getattr(base, "id", "") == "CrashcheckError" for base in bases):
                yield node.name  # type: ignore[attr-defined]


def calls_of(tree: ast.Module, names: Container[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names:
            yield node


def literals(slug: ast.expr, tree: ast.Module) -> list[ast.expr]:
    """What a slug may be: a literal, a choice between two, or a variable with such a value."""
    if isinstance(slug, ast.IfExp):
        return [slug.body, slug.orelse]
    if isinstance(slug, ast.Name):
        values = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == slug.id for target in node.targets)
        ]
        return [literal for value in values for literal in literals(value, tree)] or [slug]
    return [slug]


def sources() -> Iterator[Path]:
    yield from sorted((ROOT / "src" / "crashcheck").glob("*.py"))
    for folder in (
        "src/crashcheck/change",
        "src/crashcheck/cli",
        "src/crashcheck/config",
        "src/crashcheck/stages",
        "src/crashcheck/testing",
        "analyzer",
        "runtime",
        "checker",
        "reports",
    ):
        yield from sorted((ROOT / folder).glob("**/*.py"))


def slugs_in_document() -> list[str]:
    return re.findall(
        r"^### `([a-z0-9-]+)`$", (ROOT / "docs" / "messages.md").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_every_slug_has_an_entry_and_every_entry_a_slug() -> None:
    code = slugs_in_code()
    document = slugs_in_document()
    assert {slug: where for slug, where in code.items() if slug not in document} == {}
    assert [slug for slug in document if slug not in code] == []


def test_entries_are_unique_and_slugs_are_plain_words() -> None:
    document = slugs_in_document()
    assert len(document) == len(set(document))
    assert [slug for slug in slugs_in_code() if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug)] == []
