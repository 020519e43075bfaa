"""Where a line is put into C and C++ source, and how edits of one file are made together."""

from __future__ import annotations

import pytest

from crashcheck.checker.fixes.candidates import Step
from crashcheck.checker.fixes.source.c_source import NotEditable, Source
from crashcheck.checker.fixes.source.line_edits import put_lines
from crashcheck.checker.fixes.source.patch import applied, diff
from crashcheck.checker.results import Edit, Location
from crashcheck.errors import CrashcheckError


def put(text: str, before: bool = False) -> str:
    """The text with `flush();` put in at the statement of the line with the mark."""
    at = text.index("§")
    text = text.replace("§", "")
    source = Source(text)
    line = source.line_of(at)
    statement = source.statement(line, at - source.position(line, 1) + 1)
    place = Location("f.c", line, 1, "f", "", ())
    first, last = source.line_of(statement.start), source.line_of(statement.end - 1)
    edits = put_lines(Step(place, (), before), source, statement, first, last, ["flush();"])
    return applied(edits, lambda file: text)["f.c"][1]


def test_a_line_is_put_after_the_whole_statement_and_indented_as_it() -> None:
    assert put("{\n    x\n        §= 1; /* why */\n    y = 2;\n}\n") == (
        "{\n    x\n        = 1; /* why */\n    flush();\n    y = 2;\n}\n"
    )
    assert put("{\n\tx §= 1;\n}\n", before=True) == "{\n\tflush();\n\tx = 1;\n}\n"


def test_a_body_without_braces_gets_them() -> None:
    assert (
        put("    if (a)\n        x §= 1;\n    y();\n")
        == "    if (a) {\n        x = 1;\n        flush();\n    }\n    y();\n"
    )
    assert (
        put("    if (a)\n        x §= 1;\n", before=True) == "    if (a) {\n        flush();\n        x = 1;\n    }\n"
    )
    assert (
        put("    for (;;) /* on */\n        x §= 1;\n")
        == "    for (;;) { /* on */\n        x = 1;\n        flush();\n    }\n"
    )
    assert (
        put("    if (a) {\n    } else\n        x §= 1;\n")
        == "    if (a) {\n    } else {\n        x = 1;\n        flush();\n    }\n"
    )
    assert put("    if (a) x §= 1;\n") == "    if (a) {\n        x = 1;\n        flush();\n    }\n"


def test_an_else_follows_the_brace_that_an_edit_adds_unless_the_program_writes_it_on_its_own_line() -> None:
    text = "    if (a)\n        x §= 1;\n    else\n        y();\n"
    fixed = "    if (a) {\n        x = 1;\n        flush();\n    } else\n        y();\n"
    assert put(text) == fixed
    apart = "    if (b) {\n    }\n    else {\n    }\n"
    assert put(apart + text) == apart + fixed.replace("} else", "}\n    else")


def test_code_that_shares_its_line_is_left_alone() -> None:
    with pytest.raises(NotEditable, match="other code is before it"):
        put("    a(); x §= 1;\n")


@pytest.mark.parametrize(
    ("text", "before", "why"),
    [
        ("{\n    x §= 1; /* a comment\n    of two lines */\n}\n", False, "a comment continues"),
        ("{\n    /* a comment\n    of two lines */ x §= 1;\n}\n", True, "a comment continues"),
        ("    if (a)\n#ifdef B\n        x §= 1;\n#else\n        y = 1;\n#endif\n", False, "a directive"),
        ("    if (a)\n    x §= 1;\n", False, "not indented more"),
    ],
)
def test_no_line_is_put_into_a_comment_and_no_brace_among_directives(text: str, before: bool, why: str) -> None:
    with pytest.raises(NotEditable, match=why):
        put(text, before)


def test_edits_of_one_file_are_made_together_and_equal_ones_once() -> None:
    edits = [
        Edit("f.c", 2, False, "b"),
        Edit("f.c", 1, True, "0"),
        Edit("f.c", 2, False, "b"),
        Edit("f.c", 2, False, "c"),
    ]
    changed = applied(edits, lambda file: "1\n2\n3\n")
    assert changed["f.c"][1] == "0\n1\n2\nb\nc\n3\n"
    assert diff(changed) == "--- a/f.c\n+++ b/f.c\n@@ -1,3 +1,6 @@\n+0\n 1\n 2\n+b\n+c\n 3\n"


def test_a_file_with_carriage_returns_keeps_them() -> None:
    edits = [
        Edit("f.c", 1, True, "if (a) {", "if (a)"),
        Edit("f.c", 2, False, "    flush();"),
        Edit("f.c", 2, False, "}"),
    ]
    _, after = applied(edits, lambda file: "if (a)\r\n    x = 1;\r\ny = 2;\r\n")["f.c"]
    assert after == "if (a) {\r\n    x = 1;\r\n    flush();\r\n}\r\ny = 2;\r\n"


def test_a_diff_has_the_lines_that_patch_sees() -> None:
    changed = applied([Edit("f.c", 1, False, "b")], lambda file: "1\f2\n3\n")
    assert diff(changed) == "--- a/f.c\n+++ b/f.c\n@@ -1,2 +1,3 @@\n 1\f2\n+b\n 3\n"


def test_two_different_changes_of_one_line_are_refused() -> None:
    edits = [Edit("f.c", 1, True, "if (a) {", "if (a)"), Edit("f.c", 1, True, "if (a) x();", "if (a)")]
    with pytest.raises(CrashcheckError) as caught:
        applied(edits, lambda file: "if (a)\n    x();\n")
    assert caught.value.slug == "fix-conflict"


def test_a_line_that_is_no_longer_what_it_was_is_not_replaced() -> None:
    with pytest.raises(CrashcheckError) as caught:
        applied([Edit("f.c", 1, True, "if (b) {", "if (a)")], lambda file: "if (c)\n")
    assert caught.value.slug == "fix-source-changed"
