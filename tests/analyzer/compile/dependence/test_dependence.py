"""Which access depends on which read, on small sources as clang compiles them."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.compile.dependence import summaries
from crashcheck.analyzer.compile.dependence.interprocedural import SiteRef, site_dependences
from crashcheck.analyzer.compile.dependence.postdominance import control_dependence, postdominators
from crashcheck.analyzer.compile.dependence.reader import read_functions
from crashcheck.analyzer.compile.dependence.summaries import PARAMETER, SITE, SiteSummary, atom
from crashcheck.analyzer.compile.facts import ProgramFacts, UnitFacts, decode, encode
from crashcheck.analyzer.compile.instrument.unit import UnitOptions, canonical_text, instrument_text
from crashcheck.errors import CrashcheckError
from support.compilers import plain_clang

C = "struct s { long x, y, z, w; struct s *next; volatile long v; long a[4]; };\n"
Dependent = Callable[..., list[str]]


@pytest.fixture(params=["-O0", "-O2"])
def facts_of(request: pytest.FixtureRequest, tmp_path: Path, clang: str) -> Callable[..., UnitFacts]:
    """`facts_of(source, cxx=False)`: a unit's facts, with hooks in place, at each level of optimisation."""

    def compile_it(source: str, cxx: bool = False, name: str = "unit") -> UnitFacts:
        path = tmp_path / (name + (".cc" if cxx else ".c"))
        path.write_text(C + source)
        bitcode = path.with_suffix(".bc")
        flags = ["-g", request.param, "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm", "-Wno-everything"]
        subprocess.run([*plain_clang(clang), *flags, str(path), "-o", str(bitcode)], check=True)
        options = UnitOptions(str(path), str(tmp_path), clang)
        _, facts = instrument_text(canonical_text(bitcode.read_bytes(), options), options)
        key, _ = encode(facts)
        return dataclasses.replace(facts, key=key)

    return compile_it


def dependences(*units: UnitFacts, indirect: Mapping[SiteRef, frozenset[str]] | None = None) -> list[str]:
    """`variable <- variable how`; a load in brackets; how: v(alue), a(ddress), c(ontrol), and ^ if inherited."""
    program = ProgramFacts({unit.key: unit for unit in units}, (), ())

    def name(ref: SiteRef) -> str:
        site = program.units[ref.unit].sites[ref.index]
        variable = site.variable.removeprefix("s.") or site.kind
        return f"[{variable}]" if site.kind == "load" else variable

    return sorted(
        {
            f"{name(one.site)} <- {name(one.on)} "
            + "v" * one.value
            + "a" * one.address
            + "c" * one.control
            + "^" * one.inherited
            for one in site_dependences(program, indirect or {})
        }
    )


def of_stores(dependent: list[str]) -> list[str]:
    return [line for line in dependent if line[0] != "["]


@pytest.fixture
def dependent(facts_of: Callable[..., UnitFacts]) -> Dependent:
    return lambda source, cxx=False: dependences(facts_of(source, cxx))


def test_dependences_on_reads_that_ran_are_those_of_all_with_the_others_left_out(
    facts_of: Callable[..., UnitFacts],
) -> None:
    unit = facts_of("int x, y, z; void f(void) { if (x) z = y; }")
    program = ProgramFacts({unit.key: unit}, (), ())
    every = site_dependences(program, {})
    reads = {one.on for one in every}
    assert len(reads) == 2
    for read in reads:
        assert list(site_dependences(program, {}, {read})) == [one for one in every if one.on == read]


def test_a_guarded_store_depends_on_the_guard_by_control(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { if (p->x) p->y = 3; p->z = 1; }") == ["y <- [x] c"]


def test_a_store_depends_by_value_on_what_it_computes_from(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { p->y = p->x + 3; }") == ["y <- [x] v"]


def test_an_address_that_was_read_is_distinguished_from_a_value(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { p->next->y = p->x; }") == ["y <- [next] a", "y <- [x] v"]


def test_an_index_that_was_read_is_an_address(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { p->a[p->x] = 1; }") == ["a[] <- [x] a"]


def test_a_guarded_read_depends_on_its_guardian(dependent: Dependent) -> None:
    """Witcher's rule RO3."""
    assert dependent("void f(struct s *p) { if (p->x) p->z = p->y + 3; }") == [
        "[y] <- [x] c",
        "z <- [x] c",
        "z <- [y] v",
    ]


def test_both_sides_of_a_short_circuit_decide(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { if (p->x && p->y) p->z = 1; }") == [
        "[y] <- [x] c",
        "z <- [x] c",
        "z <- [y] c",
    ]


def test_the_value_of_a_short_circuit_depends_on_its_first_side_by_control(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { p->z = p->x && p->y; }") == ["[y] <- [x] c", "z <- [x] c", "z <- [y] v"]


def test_an_early_return_makes_the_rest_depend_on_its_condition(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { if (p->x) return; p->y = 1; p->z = 2; }") == ["y <- [x] c", "z <- [x] c"]


def test_an_abort_makes_the_rest_depend_on_its_condition(dependent: Dependent) -> None:
    assert dependent(
        "void abort(void) __attribute__((noreturn)); void f(struct s *p) { if (p->x) abort(); p->y = 1; }"
    ) == ["y <- [x] c"]


def test_each_case_of_a_switch_depends_on_what_is_switched_on(dependent: Dependent) -> None:
    source = "void f(struct s *p) { switch (p->x) { case 1: p->y = 1; break; case 7: p->z = 1; } p->w = 1; }"
    assert dependent(source) == ["y <- [x] c", "z <- [x] c"]


def test_a_loop_s_body_depends_on_its_condition_and_what_follows_does_not(dependent: Dependent) -> None:
    source = "void f(struct s *p) { for (long i = 0; i < p->x; i++) p->y = 1; p->z = 1; }"
    assert dependent(source) == ["[x] <- [x] c", "y <- [x] c"]


def test_a_loop_carries_what_its_variable_was_read_from(dependent: Dependent) -> None:
    source = "void f(struct s *p) { while (p) { p->y = 1; p = p->next; } }"
    assert dependent(source) == ["[next] <- [next] ac", "y <- [next] ac"]


def test_code_after_an_endless_loop_s_branch_still_depends_on_it(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { if (p->x) for (;;) p->y = 1; p->z = 1; }") == ["y <- [x] c", "z <- [x] c"]


def test_a_conditional_expression_is_decided_by_its_condition(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { p->z = p->x ? p->y : p->w; }") == [
        "[w] <- [x] c",
        "[y] <- [x] c",
        "z <- [w] v",
        "z <- [x] c",
        "z <- [y] v",
    ]


def test_a_select_is_data() -> None:
    text = """define void @f(ptr %p, ptr %q) {
  %c = load i1, ptr %p
  %v = select i1 %c, i64 1, i64 2
  store i64 %v, ptr %q
  ret void
}
"""
    (function,) = read_functions(text, ["load", "store"], {"f": {0: 0, 2: 1}}, {"f": {0: (0,)}})
    assert function.sites[1] == SiteSummary(1, -1, (atom(SITE, 0),), (atom(PARAMETER, 1),))


def test_which_of_two_assignments_holds_depends_on_the_branch_between_them(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { long t = 0; if (p->x) t = 1; p->y = t; }") == ["y <- [x] c"]


def test_a_local_that_is_overwritten_passes_nothing_on(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { long t = p->x; t = 5; p->y = t; }") == []


def test_a_volatile_read_counts_as_any_other(dependent: Dependent) -> None:
    assert dependent("void f(struct s *p) { volatile long t = p->v; p->y = t; }") == ["y <- [v] v"]


def test_a_struct_on_the_stack_passes_its_fields_into_a_copy(dependent: Dependent) -> None:
    source = "void f(struct s *p, struct s *q) { struct s t; t.y = p->x; __builtin_memcpy(q, &t, sizeof t); }"
    assert [line.rpartition(" <- ")[2] for line in dependent(source)] == ["[x] v"]


def test_a_callee_s_result_carries_what_it_read(dependent: Dependent) -> None:
    source = "static long get(struct s *p) { return p->x; } void f(struct s *p) { p->y = get(p); }"
    assert dependent(source) == ["y <- [x] v"]


def test_a_result_used_as_a_condition_is_control(dependent: Dependent) -> None:
    source = "static long get(struct s *p) { return p->x; } void f(struct s *p) { if (get(p)) p->y = 1; }"
    assert dependent(source) == ["y <- [x] c"]


def test_what_decides_the_result_is_control_too(dependent: Dependent) -> None:
    source = "static long has(struct s *p) { if (p->x) return 1; return 0; } void f(struct s *p) { p->y = has(p); }"
    assert dependent(source) == ["y <- [x] c"]


def test_an_argument_reaches_the_store_in_the_callee(dependent: Dependent) -> None:
    source = "static void set(struct s *p, long v) { p->y = v; } void f(struct s *p) { set(p->next, p->x); }"
    assert dependent(source) == ["y <- [next] a^", "y <- [x] v^"]


def test_a_callee_s_stores_depend_on_what_the_call_depends_on(dependent: Dependent) -> None:
    source = "static void set(struct s *p) { p->y = 1; } void f(struct s *p) { if (p->x) set(p); }"
    assert dependent(source) == ["y <- [x] c^"]


def test_two_callers_of_one_helper_do_not_mix(dependent: Dependent) -> None:
    source = """static long twice(long v) { return 2 * v; }
    void f(struct s *p) { p->y = twice(p->x); } void g(struct s *p) { p->w = twice(p->z); }"""
    assert dependent(source) == ["w <- [z] v", "y <- [x] v"]


def test_a_recursive_function_ends_in_a_fixed_point(dependent: Dependent) -> None:
    source = "long last(struct s *p) { return p->next ? last(p->next) : p->x; } void f(struct s *p) { p->y = last(p); }"
    assert of_stores(dependent(source)) == ["y <- [next] c", "y <- [x] v"]


def test_an_output_parameter_carries_what_the_callee_stored(dependent: Dependent) -> None:
    source = (
        "static void get(struct s *p, long *out) { *out = p->x; } void f(struct s *p) { long t; get(p, &t); p->y = t; }"
    )
    assert [line for line in dependent(source) if line.startswith("y")] == ["y <- [x] v"]


def test_a_call_of_unknown_code_passes_its_arguments_to_its_result(dependent: Dependent) -> None:
    assert dependent("long hash(long); void f(struct s *p) { p->y = hash(p->x); }") == ["y <- [x] v"]


def test_a_compare_and_swap_reads_and_writes(dependent: Dependent) -> None:
    source = "void f(struct s *p) { if (__sync_bool_compare_and_swap(&p->x, 0, p->z)) p->y = 1; }"
    assert dependent(source) == ["x <- [z] v", "y <- [z] c", "y <- x c"]


def test_a_function_pointer_leads_where_the_trace_saw_it_go(facts_of: Callable[..., UnitFacts]) -> None:
    unit = facts_of("void set(struct s *p, long v) { p->y = v; } void f(struct s *p, void (*h)()) { h(p, p->x); }")
    site = next(i for i, one in enumerate(unit.sites) if one.kind == "call" and not one.callee)
    assert dependences(unit) == []
    assert dependences(unit, indirect={SiteRef(unit.key, site): frozenset({"set"})}) == ["y <- [x] v^"]


def test_calls_cross_units(facts_of: Callable[..., UnitFacts]) -> None:
    caller = facts_of("void set(struct s *, long); void f(struct s *p) { if (p->x) set(p, p->z); }", name="caller")
    callee = facts_of("void set(struct s *p, long v) { p->y = v; }", name="callee")
    assert dependences(caller, callee) == ["[z] <- [x] c", "y <- [x] c^", "y <- [z] v^"]


def test_a_handler_depends_on_what_decided_the_throw(dependent: Dependent) -> None:
    source = """static void check(s *p) { if (p->x) throw 1; }
    void f(s *p) { try { check(p); p->y = 1; } catch (...) { p->z = 1; } }"""
    assert {"y <- [x] c", "z <- [x] c"} <= set(dependent(source, cxx=True))


GRAPHS = st.integers(1, 9).flatmap(
    lambda count: st.lists(st.lists(st.integers(0, count - 1), max_size=3, unique=True), min_size=count, max_size=count)
)


def reaching_exit(successors: list[list[int]], without: int) -> set[int]:
    """Blocks from which a path that avoids `without` leaves the function."""
    found = {block for block, targets in enumerate(successors) if not targets and block != without}
    while True:
        more = {b for b, targets in enumerate(successors) if b != without and found & set(targets)} - found
        if not more:
            return found
        found |= more


@given(GRAPHS)
def test_postdominators_are_those_of_the_definition(successors: list[list[int]]) -> None:
    count = len(successors)
    ends = reaching_exit(successors, -1)
    if len(ends) < count:
        return  # the definition does not cover a block that never ends: see the next test
    parent = postdominators(successors)
    for block in range(count):
        chain = set()
        at = parent[block]
        while at != count:
            chain.add(at)
            at = parent[at]
        assert chain == {
            other for other in range(count) if other != block and block not in reaching_exit(successors, other)
        }


@given(GRAPHS)
def test_every_graph_has_postdominators_that_lead_to_the_exit(successors: list[list[int]]) -> None:
    count = len(successors)
    parent = postdominators(successors)
    for block in range(count):
        at, steps = block, 0
        while at != count:
            at, steps = parent[at], steps + 1
            assert steps <= count
    deciding = control_dependence(successors)
    assert all(len(successors[branch]) > 1 for blocks in deciding for branch in blocks)


def test_dependences_survive_the_section(facts_of: Callable[..., UnitFacts]) -> None:
    unit = facts_of("static long get(struct s *p) { return p->x; } void f(struct s *p) { if (p->z) p->y = get(p); }")
    _, blob = encode(dataclasses.replace(unit, key=0))
    (again,) = decode(blob, "program")
    functions = summaries.unpack(again.dependences)
    assert summaries.pack(functions) == unit.dependences
    assert {(one.symbol, one.internal) for one in functions} == {("f", False), ("get", True)}


def test_closing_over_a_large_program_can_be_ended_between_functions(facts_of: Callable[..., UnitFacts]) -> None:
    class Ended(Exception):
        pass

    unit = facts_of("void f(struct s *p) { p->x = p->y; }\nvoid g(struct s *p) { f(p); p->z = p->x; }")
    calls = 0

    def keep_on() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Ended

    with pytest.raises(Ended):
        site_dependences(ProgramFacts({unit.key: unit}, (), ()), {}, keep_on=keep_on)


@pytest.mark.parametrize("text", ["{", "[]", "[[[]],[1]]", '[[[]],[["f",0,[9],[],[],0,0,[]]]]', "[[[]],[[]]]"])
def test_corrupted_dependences_are_named(text: str) -> None:
    unit = UnitFacts("a.c", "/", "clang", "llvmlite", dependences=text, key=1)
    with pytest.raises(CrashcheckError, match=r"a\.c") as caught:
        site_dependences(ProgramFacts({1: unit}, (), ()), {})
    assert caught.value.slug == "facts-corrupt"
