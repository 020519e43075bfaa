"""Each litmus test leaves exactly the states that it names, and each is named in docs/crash-model.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crashcheck.analyzer.persistence import build
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies import strategy
from crashcheck.checker.strategies.plan import select_states
from support.litmus import LITMUS, Litmus
from support.paths import ROOT
from support.tracing import TraceBuilder
from support.worlds import apply


def survivors(case: Litmus, folder: Path) -> set[tuple[int, ...]]:
    first: dict[str, bytes | None] = {"a": bytes(case.size) if case.size >= 0 else None}
    if case.name.endswith("-after-truncation"):
        first["a"] = b"\7" * case.size
    (folder / "first").mkdir()
    if first["a"] is not None:
        (folder / "first" / "a").write_bytes(first["a"])
    t = TraceBuilder(folder / "trace.cct")
    t.file("a", max(case.size, 0), existed=case.size >= 0)
    case.program(t)
    space = StateSpace(build(t.trace(), case.model, case.options))
    content = Content(space, folder / "first")
    seen = set()
    for state in select_states(space, strategy("exhaustive")):
        image = apply(apply(first, content.durable(None, state.point)), content.patches(state))["a"]
        point = space.points[state.point]

        def look(what: int | str, image: bytes | None = image, acked: int = point.acked) -> int:
            if what == "acked":
                return acked
            if what == "exists":
                return int(image is not None)
            if what == "size":
                return len(image or b"")
            return image[int(what)] if image is not None and int(what) < len(image) else -1

        seen.add(tuple(look(what) for what in case.watch))
    return seen


@pytest.mark.parametrize("case", LITMUS, ids=lambda case: case.name)
def test_what_survives_is_exactly(case: Litmus, tmp_path: Path) -> None:
    assert survivors(case, tmp_path) == case.expected


def test_names_are_unique() -> None:
    assert len({case.name for case in LITMUS}) == len(LITMUS)


def test_the_document_names_every_litmus_test_and_no_other() -> None:
    text = (ROOT / "docs" / "crash-model.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:px86|eadr|page-cache)-[a-z0-9-]+)`", text))
    assert named == {case.name for case in LITMUS}
