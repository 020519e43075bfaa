"""Every message for users has its entry in docs/messages.md, and every entry its message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def slugs_in_code() -> dict[str, str]:
    """Each slug that an error for users may carry, with where. A slug is always a literal."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources()}
    errors = {"CrashcheckError"}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                getattr(base, "id", "") == "CrashcheckError" for base in node.bases
            ):
                errors.add(node.name)
    found: dict[str, str] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if not isinstance(node, ast.Call) or name not in (*errors, "Trouble"):
                continue
            # A Trouble is an error on its way from a worker process: its slug comes second, and is passed on as it is.
            slug = node.args[1 if name == "Trouble" else 0]
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(slug, ast.Attribute) and slug.attr == "slug":
                continue
            for choice in literals(slug, tree):
                assert isinstance(choice, ast.Constant), f"{where}: the slug is no literal"
                found[str(choice.value)] = where
    return found


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
    for folder in ("src/crashcheck", "src/crashcheck/cli", "analyzer", "runtime", "checker", "reports"):
        yield from sorted((ROOT / folder).glob("*.py" if folder == "src/crashcheck" else "**/*.py"))


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
