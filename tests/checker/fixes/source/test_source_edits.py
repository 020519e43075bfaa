"""What an edit of C and C++ source writes: which address, size and call, and where none is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from crashcheck.checker.fixes.candidates import Step
from crashcheck.checker.fixes.source.c_source import NotEditable, Source, macros_of
from crashcheck.checker.fixes.source.c_targets import stored, target, whole
from crashcheck.checker.fixes.source.patch import applied
from crashcheck.checker.fixes.source.primitives import Called
from crashcheck.checker.fixes.source.source_edit import EditWriter
from crashcheck.checker.results import Edit, Location
from crashcheck.runtime.trace_format import SyncKind
from support.checked_worlds import World, words


def region(text: str, mark: str = "§", macros: str = "") -> tuple[str, str]:
    """Address and size of what the statement at the mark stores to."""
    at = text.index(mark)
    text = text.replace(mark, "")
    source = Source(text)
    line = source.line_of(at)
    column = at - source.position(line, 1) + 1
    statement = source.statement(line, column)
    found = stored(source, statement, at, macros_of(macros))
    return found.address, found.size


@pytest.mark.parametrize(
    ("text", "address", "size"),
    [
        ("{ p->f §= v; }", "&p->f", "sizeof p->f"),
        ("{ a[i].f §= g(x, y) == 3; }", "&a[i].f", "sizeof a[i].f"),
        ("{ *p §= v; }", "p", "sizeof *p"),
        ("{ *(p + 1) §= v; }", "(p + 1)", "sizeof *(p + 1)"),
        ("{ ((struct s *)p)->f §= v; }", "&((struct s *)p)->f", "sizeof(((struct s *)p)->f)"),
        ("{ p->n §+= 2; }", "&p->n", "sizeof p->n"),
        ("{ p->n <<§= 2; }", "&p->n", "sizeof p->n"),
        ("{ p->n§++; }", "&p->n", "sizeof p->n"),
        ("{ §--p->n; }", "&p->n", "sizeof p->n"),
        ("{ a->x = b->y §= 0; }", "&b->y", "sizeof b->y"),
        ("{ a->x §= b->y = 0; }", "&a->x", "sizeof a->x"),
        ("{ §memcpy(&log->data[at], from, n); }", "&log->data[at]", "n"),
        ("{ §memset(p, 0, sizeof *p); }", "p", "sizeof *p"),
        ('{ §snprintf(e[i].name, sizeof e[i].name, "%d", i); }', "e[i].name", "sizeof e[i].name"),
        ("{ §__atomic_store_n(&p->f, v, __ATOMIC_RELEASE); }", "&p->f", "sizeof p->f"),
        ("{ uint64_t old = §atomic_fetch_add(&q->tail, 1); }", "&q->tail", "sizeof q->tail"),
        ("{ left.bitmap.§store(stay, std::memory_order_release); }", "&left.bitmap", "sizeof left.bitmap"),
        ("{ node->next.§store(at); }", "&node->next", "sizeof node->next"),
        ("{ at->§store(n); }", "at", "sizeof *at"),
        ("{ p->link[i]->§fetch_add(1); }", "p->link[i]", "sizeof *p->link[i]"),
        ("{ *to = §*from; }", "to", "sizeof *to"),
        ("{ p->text[0] §= '='; /* = */ }", "&p->text[0]", "sizeof p->text[0]"),
        ("if (x == 1)\n    p->f §= v;\n", "&p->f", "sizeof p->f"),
        ("for (i = 0; i < n; i++)\n    p[i] §= i;\n", "&p[i]", "sizeof p[i]"),
        ("case 3:\n    p->f §= v;\n", "&p->f", "sizeof p->f"),
        ("x = 1;\np->f\n    §= long_name(\n        v);\n", "&p->f", "sizeof p->f"),
        ("{ static_cast<node *>(p)->f §= v; }", "&static_cast<node *>(p)->f", "sizeof static_cast<node *>(p)->f"),
        ("{ p->v §= (struct v){1, 2}; }", "&p->v", "sizeof p->v"),
        ("{ run([&] {\n p->f §= v;\n }); }", "&p->f", "sizeof p->f"),
    ],
)
def test_what_a_statement_stores_to_is_read_off_it(text: str, address: str, size: str) -> None:
    assert region(text) == (address, size)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{ at->§store(n); }", "*at"),
        ("{ node->next.§store(read(at)); }", "node->next"),
        ("{ *to = §*from; }", "*to"),
        ("{ to[i] = §from[i + 1]; }", "to[i]"),
        ("{ *to = §++from->count; }", ""),
        ("{ *to = x + §*from; }", ""),
    ],
)
def test_a_store_is_named_by_what_it_stores_to(text: str, name: str) -> None:
    at, source = text.index("§"), Source(text.replace("§", ""))
    assert target(source, 1, at + 1, {}) == name


def test_a_variable_that_refers_to_an_object_is_not_flushed_instead_of_it(tmp_path: Path) -> None:
    text = "void f(struct s *p)\n{\n    std::atomic_ref<long> slot(p->slot);\n    slot.store(1);\n}\n"
    edits, why = writer(tmp_path, text, "a.cc").write([Step(Location("a.cc", 4, 10, "f", "", ()), (0,), flush=True)])
    assert (edits, why) == ((), "a.cc:4: `slot` only refers to what is stored to")


def test_the_definition_of_a_macro_is_read() -> None:
    macros = "#define PUBLISH(place, value) \\\n    __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)\n"
    macros += "#define SET(p, v) PUBLISH(p, v)"
    assert region("{ §PUBLISH(undo->entry, OFFSET(entry)); }", macros=macros) == ("&undo->entry", "sizeof undo->entry")
    assert region("{ §SET(b->f, 1); }", macros=macros) == ("&b->f", "sizeof b->f")
    assert region("{ §PUT(b->f, 1); }", macros="#define PUT(a, b) (a) = (b)") == ("&b->f", "sizeof b->f")
    assert region("{ §PUT(b, f, 1); }", macros="#define PUT(a, m, b) ((a)->m = (b))") == ("&(b)->f", "sizeof((b)->f)")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{ p[n++] §= v; }", "side effect"),
        ("if (§set(p, 1))\n    f();\n", "part of a condition"),
        ("while (!§atomic_compare_exchange_weak(&p->f, &a, b))\n    ;\n", "part of a condition"),
        ("do {\n    f();\n} while (!§cas(&p->f, a, b));\n", "part of a condition|holds others|no assignment"),
        ("{ return p->f §= v; }", "part of a return"),
        ("{ §put(p, v); }", "`put`, whose arguments are not understood"),
        ("{ struct s x §= {0}; }", "declares a variable"),
        ("struct s {\n int x[3] §= {1, 2, 3};\n};", "`int x.3.` is more than"),
        ("{ x = a ? p->f §= 1 : 0; }", "`a . p->f` is more than"),
        ("{ p->f = 1, p->g §= 2; }", "`1, p->g` is more than"),
        ("{ count(), p->g §= 2; }", "`count.., p->g` is more than"),
        ("for (i = 0;\n     p->n §= next(i);\n     i++)\n    f();\n", "part of a condition"),
    ],
)
def test_what_cannot_be_repeated_is_refused(text: str, why: str) -> None:
    with pytest.raises(NotEditable, match=why):
        region(text)


def test_a_macro_of_several_statements_is_not_taken_for_one() -> None:
    for body in ("log(p); (p)->f = (v)", "if (p) (p)->f = (v)", "log(p), (p)->f = (v)"):
        with pytest.raises(NotEditable, match="is more than what is stored to"):
            region("{ §SET(p, 1); }", macros=f"#define SET(p, v) {body}")


def looped(text: str) -> tuple[str, str]:
    """What the whole loop stores to whose body the mark is in."""
    at = text.index("§")
    text = text.replace("§", "")
    source = Source(text)
    line = source.line_of(at)
    statement = source.statement(line, at - source.position(line, 1) + 1)
    loop = source.loop_around(statement)
    assert loop is not None
    found = whole(stored(source, statement, at, {}), loop)
    return found.address, found.size


def test_what_a_counting_loop_stores_is_one_range() -> None:
    assert looped("for (int i = 0; i < n; i++)\n    p->word[i] §= 0;\n") == ("&p->word[0]", "n * sizeof p->word[0]")
    assert looped("for (size_t i = a; i != p->end; ++i) {\n    p->word[i].x §= q[i];\n}\n") == (
        "&p->word[a]",
        "(p->end - a) * sizeof p->word[a]",
    )


@pytest.mark.parametrize(
    "text",
    [
        "for (int i = n; i-- > 0;)\n    p[i] §= 0;\n",
        "for (int i = 0; i < n && p[i]; i++)\n    p[i] §= 0;\n",
        "for (int i = 0; i < n; i++)\n    p[at[i]] §= 0;\n",
        "for (int i = 0; i < n; i++)\n    p[i][i] §= 0;\n",
        "for (int i = 0; i < n; i++)\n    *p §= 0;\n",
        "for (int i = 0; i < size(p); i++)\n    p[i] §= 0;\n",
        "while (i < n)\n    p[i] §= f(&i);\n",
    ],
)
def test_a_loop_that_does_not_count_through_an_array_is_refused(text: str) -> None:
    with pytest.raises(NotEditable, match="its loop"):
        looped(text)


@pytest.mark.parametrize(
    ("text", "alone", "within"),
    [
        ("{\n    x §= 1;\n}\n", False, False),
        ("void f(int a) {\n    if (a)\n        x §= 1;\n}\n", False, False),
        ("for (;;)\n    x §= 1;\n", True, True),
        ("while (a) {\n    x §= 1;\n}\n", True, True),
        ("for (;;) {\n    x §= 1;\n    y = 1;\n}\n", False, True),
        ("for (;;)\n    if (a) {\n        x §= 1;\n    }\n", False, True),
        ("do {\n    x §= 1;\n} while (a);\n", False, True),
        ("for (;;) {\n}\nx §= 1;\n", False, False),
        ("for (;;)\n    if (a)\n        y = 1;\n    else\n        x §= 1;\n", False, True),
    ],
)
def test_a_loop_around_a_statement_is_seen(text: str, alone: bool, within: bool) -> None:
    at = text.index("§")
    source = Source(text.replace("§", ""))
    line = source.line_of(at)
    statement = source.statement(line, at - source.position(line, 1) + 1)
    assert (source.loop_around(statement) is not None, source.in_loop(statement)) == (alone, within)


def test_two_fixes_of_one_statement_share_its_braces(tmp_path: Path) -> None:
    text = "#include <immintrin.h>\nvoid f(void) {\n    if (a)\n        p->x = 1;\n    g();\n}\n"
    place = Location("f.c", 4, 14, "f", "p.x", ())
    program = writer(tmp_path, text)
    flushed, _ = program.write([Step(place, (1,), flush=True)])
    both, _ = program.write([Step(place, (1,), flush=True, fence=True)])
    fenced, _ = program.write([Step(place, (1,), before=True, fence=True), Step(place, (1,), flush=True)])
    for edits, lines in (
        (flushed + both, ("p->x = 1;", "_mm_clflush(&p->x);", "_mm_clflush(&p->x);", "_mm_sfence();")),
        (fenced, ("_mm_sfence();", "p->x = 1;", "_mm_clflush(&p->x);")),
    ):
        body = "".join(f"        {line}\n" for line in lines)
        assert applied(edits, lambda file: text)["f.c"][1] == text.replace("if (a)", "if (a) {").replace(
            "        p->x = 1;\n", body + "    }\n"
        )


def test_what_follows_a_loop_follows_the_braces_of_its_body_too(tmp_path: Path) -> None:
    text = "#include <immintrin.h>\nvoid f(void) {\n    for (i = 0; i < n; i++)\n        p[i] = 1;\n}\n"
    program = writer(tmp_path, text)
    place = Location("f.c", 4, 14, "f", "p[]", ())
    after, _ = program.write([Step(place, (1,), fence=True, after_loop=True)])
    inside, _ = program.write([Step(place, (1,), flush=True)])
    assert applied(after + inside, lambda file: text)["f.c"][1].endswith(
        "(i = 0; i < n; i++) {\n        p[i] = 1;\n        _mm_clflush(&p[i]);\n    }\n    _mm_sfence();\n}\n"
    )


def test_a_bit_field_has_no_address_to_flush(tmp_path: Path) -> None:
    text = "struct s {\n    unsigned used : 1, dirty : 1;\n};\nvoid f(struct s *p) {\n    p->dirty = 1;\n}\n"
    step = Step(Location("f.c", 5, 14, "f", "s.dirty", ()), (1,), flush=True)
    assert writer(tmp_path, text).write([step]) == ((), "f.c:5: `dirty` is a bit-field, which has no address")


def test_a_macro_is_called_only_after_it_and_what_it_calls_are_declared(tmp_path: Path) -> None:
    macro, function = "#define PUT(x) wb((x), sizeof *(x))\n", "void wb(const void *at, long n);\n"
    store = "void f(struct s *p) {\n    p->x = 1;\n}\n"
    for parts in ((macro, function, store), (macro, store, function), (function, store, macro)):
        text = "#include <immintrin.h>\n" + "".join(parts)
        line = text[: text.index("p->x")].count("\n") + 1
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        program = writer(folder, text)
        program._primitives.__dict__["calls"] = [Called("f.c", "PUT", ("&p->y",), frozenset({"flush"}), 0)]
        call = "    PUT(&p->x);\n" if parts[2] is store else "    _mm_clflush(&p->x);\n"
        assert call in written(program, folder, Step(Location("f.c", line, 10, "f", "p.x", ()), (1,), flush=True))


def test_a_macro_that_gives_the_size_is_called_once_for_what_spans_lines(tmp_path: Path) -> None:
    text = "#define PUT(x) wb((x), sizeof *(x))\nvoid f(struct s *p) {\n    p->x = y;\n}\n"
    (tmp_path / "f.c").write_text(text)
    world = World(tmp_path / "world", words("true"), lambda t: t.store("p", 0, 128, bytes(128)))
    program = EditWriter(world.subject, lambda row: (), tmp_path)
    program._primitives.__dict__["calls"] = [Called("f.c", "PUT", ("&p->y",), frozenset({"flush"}), 0)]
    rows = tuple(np.flatnonzero(world.subject.trace.events["size"] == 128).tolist())
    assert rows
    edits, _ = program.write([Step(Location("f.c", 3, 10, "f", "p.x", ()), rows, flush=True)])
    assert [edit.text for edit in edits] == ["    PUT(&p->x);"]


def test_a_volatile_object_is_not_given_to_what_may_not_take_it(tmp_path: Path) -> None:
    def put_in(parameter: str, field: str) -> tuple[str, str]:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        text = f"struct s {{\n    {field};\n}};\nvoid wb({parameter} *at);\nvoid f(void) {{\n    p->x = 1;\n}}\n"
        program = writer(folder, text, "f.cpp")
        program._primitives.__dict__["calls"] = [Called("f.cpp", "wb", ("&p->y",), frozenset({"flush"}), 0)]
        edits, why = program.write([Step(Location("f.cpp", 6, 10, "f", "p.x", ()), (1,), flush=True)])
        return "".join(edit.text for edit in edits), why

    assert put_in("const void", "long y, x") == ("    wb(&p->x);", "")
    assert put_in("const volatile void", "volatile long y, x") == ("    wb(&p->x);", "")
    edits, why = put_in("const void", "volatile long y, x")
    assert not edits
    assert why == "f.cpp:6: what is stored to is volatile, and `wb` may not take such an address"


def test_a_header_is_included_where_no_condition_leaves_it_out(tmp_path: Path) -> None:
    text = "#ifdef _WIN32\n#include <io.h>\n#endif\n#include <stdio.h>\nvoid f(void) {\n    p->x = 1;\n}\n"
    step = Step(Location("f.c", 6, 10, "f", "p.x", ()), (1,), fence=True)
    assert "#endif\n#include <immintrin.h>\n#include <stdio.h>\n" in written(writer(tmp_path, text), tmp_path, step)


def test_a_function_that_takes_the_end_of_a_range_is_not_given_its_length(tmp_path: Path) -> None:
    def put_in(last: str) -> str:
        folder = tmp_path / last.strip("*")
        folder.mkdir()
        text = f"#include <immintrin.h>\nvoid wb(void *at, {last});\nvoid f(void) {{\n    p->x = 1;\n}}\n"
        program = writer(folder, text)
        program._primitives.__dict__["calls"] = [Called("f.c", "wb", ("&p->y", "what"), frozenset({"flush"}), 0)]
        return written(program, folder, Step(Location("f.c", 4, 10, "f", "p.x", ()), (1,), flush=True))

    assert "    wb(&p->x, sizeof(p->x));\n" in put_in("long bytes")
    assert "    _mm_clflush(&p->x);\n" in put_in("void *end")


@pytest.mark.parametrize(
    ("parameters", "arguments", "call"),
    [
        ("char *at, int bytes, bool fenced", ("(char *)q", "64", "true"), "wb((char *)&p->x, sizeof(p->x), true);"),
        ("const char *at, unsigned long bytes", ("at", "8"), "wb((const char *)&p->x, sizeof(p->x));"),
        ("struct pool *pool, const void *at, size_t n", ("pool", "q", "8"), "wb(pool, &p->x, sizeof(p->x));"),
        ("void *at, bool fenced", ("q", "false"), "wb(&p->x, false);"),
        ("uintptr_t at, size_t n", ("(uintptr_t)q", "8"), "wb((uintptr_t)&p->x, sizeof(p->x));"),
    ],
)
def test_what_a_function_takes_is_read_off_its_parameters(
    parameters: str, arguments: tuple[str, ...], call: str, tmp_path: Path
) -> None:
    """A flag after the size does not make what is first a handle."""
    text = f"#include <immintrin.h>\nvoid wb({parameters});\nvoid f(void) {{\n    p->x = 1;\n}}\n"
    program = writer(tmp_path, text)
    program._primitives.__dict__["calls"] = [Called("f.c", "wb", arguments, frozenset({"flush"}), 0)]
    assert f"    {call}\n" in written(program, tmp_path, Step(Location("f.c", 4, 10, "f", "p.x", ()), (1,), flush=True))


def test_a_function_that_takes_a_reference_is_not_given_an_address(tmp_path: Path) -> None:
    """It would compile, and flush the pointer."""
    text = "#include <immintrin.h>\ntemplate <class T> void save(const T &what);\nvoid f() {\n    p->x = 1;\n}\n"
    program = writer(tmp_path, text, "f.cpp")
    program._primitives.__dict__["calls"] = [Called("f.cpp", "save", ("p->y",), frozenset({"flush"}), 0)]
    step = Step(Location("f.cpp", 4, 10, "f", "p.x", ()), (1,), flush=True)
    assert "    _mm_clflush(&p->x);\n" in written(program, tmp_path, step)


def test_where_a_call_does_not_compile_the_next_is_tried_and_at_last_words(tmp_path: Path) -> None:
    declared = "#include <immintrin.h>\nvoid wb(void *h, void *at, long n);\nvoid wx(void *at);\n"
    text = declared + "void f(void) {\n    p->x = 1;\n}\n"
    (tmp_path / "f.c").write_text(text)
    world = World(tmp_path / "world", words("true"), lambda t: t.store("p", 0, 8, 1))
    step = Step(Location("f.c", 5, 10, "f", "p.x", ()), (1,), flush=True)

    def found(*refused: str) -> tuple[list[str], str]:
        def why_not(edits: Sequence[Edit]) -> str:
            return next((f"no {name}" for name in refused if any(name in edit.text for edit in edits)), "")

        program = EditWriter(world.subject, lambda row: (), tmp_path, why_not)
        calls = [("wb", ("h", "&p->y", "8")), ("wb", ("h", "&p->z", "8")), ("wx", ("&p->y",))]
        program._primitives.__dict__["calls"] = [
            Called("f.c", name, given, frozenset({"flush"}), 0) for name, given in calls
        ]
        edits, why = program.compiled([step])
        return [edit.text.strip() for edit in edits], why

    assert found() == (["wb(h, &p->x, sizeof(p->x));"], "")
    assert found("wb") == (["wx(&p->x);"], "")
    assert found("wb", "wx") == (["_mm_clflush(&p->x);"], "")
    assert found("wb", "wx", "_mm_clflush") == ([], "f.c:5: no _mm_clflush")


@pytest.mark.parametrize(
    ("address", "size", "call"),
    [
        ("words + 1", "8", "((uintptr_t)(words + 1) & 4095) + 8"),
        ("words", "n << 3", "((uintptr_t)words & 4095) + (n << 3)"),
        ("&p->x", "sizeof p->x", "((uintptr_t)&p->x & 4095) + sizeof p->x"),
    ],
)
def test_the_range_of_a_sync_is_what_was_copied(tmp_path: Path, address: str, size: str, call: str) -> None:
    """`(uintptr_t)words + 1` would count bytes, not words."""
    text = f"void f(void) {{\n    memcpy({address}, from, {size});\n}}\n"
    step = Step(Location("f.c", 2, 5, "f", "", ()), (1,), sync=SyncKind.MSYNC)
    assert f"{call}, MS_SYNC);" in written(writer(tmp_path, text), tmp_path, step)


@pytest.mark.parametrize("leaves", ["exit(9);", "return -1;", "{\n        report();\n        goto out;\n    }"])
@pytest.mark.parametrize("fd", ["fd", "log->fd", "s.file[i]"])
def test_a_sync_follows_the_test_of_the_write(tmp_path: Path, leaves: str, fd: str) -> None:
    test = f"    if (write({fd}, p, n) != n)\n    {leaves}\n"
    text = f"#include <unistd.h>\nint f(void)\n{{\n    lock();\n{test}    g();\n}}\n"
    step = Step(Location("f.c", 5, 9, "f", "", ()), (1,), sync=SyncKind.FSYNC)
    assert f"{leaves}\n    fsync({fd});\n    g();\n" in written(writer(tmp_path, text), tmp_path, step)


@pytest.mark.parametrize(
    "test",
    [
        "if (write(fd, p, n) == n)\n    g();",
        "if (write(fd, p, n) != n)\n    exit(1);\n    else\n    g();",
        "if (write(fd, p, n) != n || g())\n    exit(1);",
        "while (write(fd, p, n) != n)\n    exit(1);",
    ],
)
def test_no_sync_follows_a_test_after_which_more_has_been_done(tmp_path: Path, test: str) -> None:
    text = f"#include <unistd.h>\nint f(void)\n{{\n    {test}\n    h();\n}}\n"
    column = test.index("write") + 5
    edits, why = writer(tmp_path, text).write(
        [Step(Location("f.c", 4, column, "f", "", ()), (1,), sync=SyncKind.FSYNC)]
    )
    assert (edits, why) == ((), "f.c:4: the store is part of a condition")


SWAPS = (
    "__sync_bool_compare_and_swap(&p->next, a, b)",
    "atomic_compare_exchange_strong(&p->next, &a, b)",
    "__atomic_compare_exchange_n(&p->next, &a, b, 0, 5, 5)",
)


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize(
    ("test", "edited"),
    [
        ("if (!SWAP)\n        goto retry;\n    g();", "if (!SWAP)\n        goto retry;\n    FLUSH\n    g();"),
        ("if (!SWAP) {\n        h();\n        continue;\n    }\n    g();", "continue;\n    }\n    FLUSH\n    g();"),
        ("if (SWAP)\n        return b;\n    g();", "if (SWAP) {\n        FLUSH\n        return b;\n    }\n    g();"),
        (
            "if (SWAP) {\n        if (b)\n            g();\n    }",
            "{\n        FLUSH\n        if (b)\n            g();\n    }",
        ),
        (
            "if (SWAP) {\n        g();\n        h();\n    }",
            "if (SWAP) {\n        FLUSH\n        g();\n        h();\n    }",
        ),
    ],
)
def test_a_flush_is_where_a_compare_and_swap_has_stored(tmp_path: Path, swap: str, test: str, edited: str) -> None:
    text = f"#include <immintrin.h>\nint f(void)\n{{\n    {test.replace('SWAP', swap)}\n}}\n"
    step = Step(Location("f.c", 4, 5 + test.index("SWAP"), "f", "", ()), (1,), flush=True)
    expected = edited.replace("SWAP", swap).replace("FLUSH", "_mm_clflush(&p->next);")
    assert expected in written(writer(tmp_path, text), tmp_path, step)


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize(
    "test",
    [
        "if (!SWAP)\n        h();",
        "if (!SWAP || g())\n        return 1;",
        "if (!SWAP)\n        return 1;\n    else\n        g();",
        "if (SWAP && g())\n        h();",
        "while (!SWAP)\n        ;",
        "if (SWAP)\n        if (b)\n            g();\n        else\n            h();",
        "if (!(SWAP))\n        return 1;",
    ],
)
def test_no_flush_is_where_a_compare_and_swap_may_not_have_stored(tmp_path: Path, swap: str, test: str) -> None:
    text = f"#include <immintrin.h>\nint f(void)\n{{\n    {test.replace('SWAP', swap)}\n}}\n"
    step = Step(Location("f.c", 4, 5 + test.index("SWAP"), "f", "", ()), (1,), flush=True)
    assert writer(tmp_path, text).write([step]) == ((), "f.c:4: the store is part of a condition")


def test_a_sync_of_what_a_loop_stores_follows_the_loop(tmp_path: Path) -> None:
    text = "#include <stdint.h>\nvoid f(void)\n{\n    for (i = 0; i < n; i++)\n        p->word[i] = i;\n    g();\n}\n"
    step = Step(Location("f.c", 5, 20, "f", "s.word[]", ()), (1,), sync=SyncKind.MSYNC, after_loop=True)
    assert (
        "        p->word[i] = i;\n    msync((void *)((uintptr_t)&p->word[0] & ~(uintptr_t)4095), "
        "((uintptr_t)&p->word[0] & 4095) + n * sizeof p->word[0], MS_SYNC);\n    g();\n"
    ) in written(writer(tmp_path, text), tmp_path, step)


def writer(tmp_path: Path, text: str, name: str = "f.c") -> EditWriter:
    """A writer for a program of one file, of whose run nothing is known."""
    (tmp_path / name).write_text(text)
    world = World(tmp_path / "world", words("true"), lambda t: t.store("p", 0, 8, 1))
    return EditWriter(world.subject, lambda row: (), tmp_path)


def written(writer: EditWriter, folder: Path, step: Step) -> str:
    edits, why = writer.write([step])
    assert edits, why
    return applied(edits, lambda file: (folder / file).read_text())[step.place.file][1]


def test_the_address_that_a_call_gives_is_taken_once(tmp_path: Path) -> None:
    text = "#include <immintrin.h>\nvoid f(void) {\n    if (a)\n        change(n)->left = a; /* why */\n    g();\n}\n"
    step = Step(Location("f.c", 4, 25, "f", "node.left", ()), (1,), flush=True, fence=True)
    assert written(writer(tmp_path, text), tmp_path, step) == (
        "#include <immintrin.h>\nvoid f(void) {\n    if (a) {\n"
        "        __typeof__(change(n)->left) *stored = &change(n)->left;\n"
        "        *stored = a; /* why */\n        _mm_clflush(stored);\n        _mm_sfence();\n    }\n    g();\n}\n"
    )


def test_where_what_is_stored_is_found_first_the_address_is_not_taken_before_it(tmp_path: Path) -> None:
    """C++17 evaluates the right side of an assignment before the left one."""
    text = "#include <immintrin.h>\nvoid f() {\n    change(n)->left = make();\n}\n"
    step = Step(Location("f.cpp", 3, 21, "f", "node.left", ()), (1,), flush=True)
    edits, why = writer(tmp_path, text, "f.cpp").write([step])
    assert not edits
    assert why == "f.cpp:3: `change(n)->left` has a side effect, and is found after what is stored there"


def test_a_fence_after_flushes_in_a_loop_follows_the_loop(tmp_path: Path) -> None:
    text = "#include <immintrin.h>\nvoid f(void) {\n    for (i = 0; i < n; i++)\n        flush(p[i]);\n    g();\n}\n"
    step = Step(Location("f.c", 4, 9, "f", "", ()), (1,), fence=True, after_loop=True)
    assert written(writer(tmp_path, text), tmp_path, step).endswith(
        "        flush(p[i]);\n    _mm_sfence();\n    g();\n}\n"
    )


def test_a_fix_in_a_file_outside_of_the_project_is_described_in_words(tmp_path: Path) -> None:
    step = Step(Location("/usr/include/pool.h", 4, 9, "f", "", ()), (1,), fence=True)
    assert writer(tmp_path, "").write([step]) == ((), "/usr/include/pool.h:4: it is outside of the project")
