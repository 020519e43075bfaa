"""What a fix puts back where a change deleted a flush: as much as the base had there, and never a part of it.

Which deleted lines explain which findings is tested on whole runs, in test_change_base.py.
"""

from __future__ import annotations

import difflib

import pytest

from crashcheck.change.diff import parse
from crashcheck.change.removed_persists import lines_put_back
from crashcheck.checker.fixes.source.c_source import Source

BEFORE = "void f(struct s *s) {\n    s->a = 1;\n"
AFTER = "    s->b = 1;\n}\n"


@pytest.mark.parametrize(
    ("deleted", "put", "restored"),
    [
        (["    flush(s);"], [], ["    flush(s);"]),
        (["    /* lasts */", "    flush(s);", "", "    s->c = 1;"], [], ["    flush(s);"]),
        (["    flush(s);"], ["    s->c = 1;"], ["    flush(s);"]),
        (["    flush(", "        s);"], [], ["    flush(", "        s);"]),
        (["    if (s)", "        flush(s);"], [], ["    if (s)", "        flush(s);"]),
        (["    if (s) {", "        flush(s);", "    }"], [], ["    if (s) {", "        flush(s);", "    }"]),
        (["#ifdef PM", "    flush(s);", "#endif"], [], ["#ifdef PM", "    flush(s);", "#endif"]),
        (["    if (s)", "        flush(s);"], ["    s->c = 1;"], []),
        (["    s->c = 1; flush(s);"], [], ["    s->c = 1; flush(s);"]),
    ],
    ids=["line", "among others", "replaced", "two lines", "if", "block", "directive", "if replaced", "shared line"],
)
def test_a_deleted_flush_is_put_back_with_what_decides_whether_it_runs(
    deleted: list[str], put: list[str], restored: list[str]
) -> None:
    base = BEFORE + "".join(f"{line}\n" for line in deleted) + AFTER
    now = BEFORE + "".join(f"{line}\n" for line in put) + AFTER
    patch = difflib.unified_diff(base.splitlines(True), now.splitlines(True), "a/f.c", "b/f.c")
    (removal,) = parse("".join(patch)).files["f.c"].removals
    (flush,) = (number for number, line in enumerate(base.split("\n"), 1) if "flush(" in line)
    column = base.split("\n")[flush - 1].index("flush(") + 1
    assert lines_put_back(Source(base), removal, {flush: column}) == tuple(restored)
