"""Verified fixes as suggestions: whole or not at all, and only on lines that are still what was recorded."""

from __future__ import annotations

from dataclasses import replace

from crashcheck.checker.results import Edit, Finding, Fix
from crashcheck.reports.github.comment import Job, ReviewComment, marker, suggestions
from support.reports.runs import LEVEL_HASH, run, with_fields

MARK = marker(Job("crashcheck.toml", "px86"))
FILE = "src/level_hash.c"
TEXTS = {FILE: {8: "    entry->value = value;", 9: "    b->tokens[slot].valid = 1;"}}
FENCE = Edit(FILE, 9, True, "    clwb(entry);\n    sfence();")


def fixed(*edits: Edit, **changes: object) -> Finding:
    made = Fix("flush-fence", "a flush of `entry` and a fence", edits, 6, 0, "with this edit: 0 of 6 states fail")
    return replace(LEVEL_HASH, fix=replace(made, **changes))  # type: ignore[arg-type]


def suggested(*findings: Finding, texts: object = TEXTS) -> tuple[ReviewComment, ...]:
    return suggestions(run(*findings), MARK, lambda file: file, texts)  # type: ignore[arg-type]


def test_an_edit_becomes_a_suggestion_that_keeps_the_line() -> None:
    (comment,) = suggested(fixed(FENCE))
    assert (comment.path, comment.line) == (FILE, 9)
    assert comment.body.startswith(f"{MARK}\n**crashcheck, ordering:** `token.valid` at src/level")
    assert "Suggested fix: a flush of `entry` and a fence. Checked: with this edit: 0 of 6 states fail." in comment.body
    assert comment.body.endswith("```suggestion\n    clwb(entry);\n    sfence();\n    b->tokens[slot].valid = 1;\n```")


def test_edits_before_and_after_one_line_are_one_suggestion() -> None:
    (comment,) = suggested(fixed(FENCE, Edit(FILE, 9, False, "    drain();")))
    assert comment.body.endswith("clwb(entry);\n    sfence();\n    b->tokens[slot].valid = 1;\n    drain();\n```")


def test_a_line_that_must_change_is_replaced() -> None:
    edit = Edit(FILE, 9, True, "    { b->tokens[slot].valid = 1; }", replaces="    b->tokens[slot].valid = 1;")
    (comment,) = suggested(fixed(edit))
    assert comment.body.endswith("```suggestion\n    { b->tokens[slot].valid = 1; }\n```")


def test_findings_with_the_same_edit_share_a_comment() -> None:
    (comment,) = suggested(fixed(FENCE), replace(fixed(FENCE), id="ORD-2", message="`other` is lost"))
    assert "`other` is lost" in comment.body


def test_a_suggestion_is_known_again_by_its_findings_and_its_text_wherever_its_line_is() -> None:
    (here,) = suggested(fixed(FENCE))
    there = {FILE: {11: TEXTS[FILE][9]}}
    lower = with_fields(LEVEL_HASH, location=replace(LEVEL_HASH.location, line=11), schedule=())
    (moved,) = suggested(replace(lower, fix=fixed(replace(FENCE, line=11)).fix), texts=there)
    assert (here.line, moved.line) == (9, 11)
    assert here.says == moved.says
    assert here.says in here.body
    assert here.says != suggested(replace(fixed(FENCE), id="ORD-2"))[0].says


def test_half_a_fix_is_not_suggested() -> None:
    assert suggested(fixed(FENCE, Edit(FILE, 40, True, "x"))) == ()


def test_a_fix_that_was_not_tried_or_did_not_help_is_not_suggested() -> None:
    assert suggested(fixed(FENCE, verified="")) == ()
    assert suggested(fixed(FENCE, after_failing=1)) == ()
    assert suggested(fixed(FENCE, before_failing=0)) == ()
    assert suggested(LEVEL_HASH) == ()
    assert suggested(replace(fixed(FENCE), suppressed="a reason")) == ()


def test_a_line_that_changed_since_it_was_recorded_gets_no_suggestion() -> None:
    assert suggested(fixed(FENCE), texts={FILE: {9: "    b->tokens[slot].valid = 2;"}}) == ()


def test_a_line_of_backticks_cannot_end_the_block() -> None:
    (comment,) = suggested(fixed(Edit(FILE, 9, True, "/* ```` ```suggestion */")))
    assert "\n`````suggestion\n" in comment.body
    assert comment.body.endswith("\n`````")


def test_windows_line_ends_are_kept() -> None:
    (comment,) = suggested(fixed(FENCE), texts={FILE: {9: "    b->tokens[slot].valid = 1;\r"}})
    assert "    sfence();\r\n    b->tokens[slot].valid = 1;\r\n```" in comment.body
