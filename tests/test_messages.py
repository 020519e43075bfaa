"""Every message for users has its entry in docs/messages.md, and every entry its message."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def slugs_in_code() -> dict[str, str]:
    """Slug of each CrashcheckError raised anywhere, with where. A slug is always a literal."""
    found: dict[str, str] = {}
    for folder in ("src/crashcheck", "src/crashcheck/cli", "analyzer", "runtime", "checker", "reports"):
        pattern = "*.py" if folder == "src/crashcheck" else "**/*.py"
        for path in sorted((ROOT / folder).glob(pattern)):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "CrashcheckError":
                    slug = node.args[0]
                    where = f"{path.relative_to(ROOT)}:{node.lineno}"
                    assert isinstance(slug, ast.Constant), f"{where}: the slug is no literal"
                    assert isinstance(slug.value, str), f"{where}: the slug is no text"
                    found[slug.value] = where
    return found


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
