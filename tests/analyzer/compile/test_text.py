"""Operands of IR text: where a value ends, and what a constant address is computed from."""

from __future__ import annotations

import pytest

from crashcheck.analyzer.compile.instrument import unit
from crashcheck.analyzer.compile.ir.text import constant_base, value_end

FIELD = "getelementptr inbounds nuw (%struct.S, ptr @g, i32 0, i32 1)"

VALUES = [
    "%7",
    '%"a name"',
    "@g",
    "null",
    "-12",
    "0x7FF0000000000000",
    "1.5e-05",
    "zeroinitializer",
    FIELD,
    f"inttoptr (i64 add (i64 ptrtoint (ptr {FIELD} to i64), i64 8) to ptr)",
    "addrspacecast (ptr addrspace(256) @g to ptr)",
    "getelementptr inbounds inrange(-16, 16) ({ [4 x ptr] }, ptr @v, i32 0, i32 0, i32 2)",
    "blockaddress(@f, %5)",
    "no_cfi @f",
    "splat (i8 1)",
    "<{ i8 1, i32 2 }>",
    "[ptr @a, ptr @b]",
    'c"a, \\22(b"',
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("rest", ["", ", align 8", " monotonic, align 4", ")"])
def test_a_value_ends_where_its_text_does(value: str, rest: str) -> None:
    assert value_end(f"ptr {value}{rest}", 4) == 4 + len(value)


@pytest.mark.parametrize(
    ("value", "base"),
    [
        ("@g", "@g"),
        ("%7", "%7"),
        (FIELD, "@g"),
        (f"bitcast (ptr {FIELD} to ptr)", "@g"),
        ("addrspacecast (ptr addrspace(256) @g to ptr)", "@g"),
        ("inttoptr (i64 4096 to ptr)", "4096"),
        ("getelementptr inbounds (%struct.S, ptr inttoptr (i64 4096 to ptr), i32 0, i32 1)", "4096"),
        ("inttoptr (i64 add (i64 ptrtoint (ptr @g to i64), i64 8) to ptr)", "@g"),
        ("inttoptr (i64 sub (i64 ptrtoint (ptr @g to i64), i64 8) to ptr)", "@g"),
        (
            "inttoptr (i64 sub (i64 ptrtoint (ptr @a to i64), i64 ptrtoint (ptr @b to i64)) to ptr)",
            "sub (i64 ptrtoint (ptr @a to i64), i64 ptrtoint (ptr @b to i64))",
        ),
        (
            "inttoptr (i64 xor (i64 ptrtoint (ptr @g to i64), i64 4) to ptr)",
            "xor (i64 ptrtoint (ptr @g to i64), i64 4)",
        ),
    ],
)
def test_a_constant_address_is_of_the_global_it_is_computed_from(value: str, base: str) -> None:
    assert constant_base(value) == base


OPAQUE = """
%struct.S = type { i32, i32, [4 x i64] }
@g = global %struct.S zeroinitializer
define i64 @f(i64 %x) {
  %a = load atomic i32, ptr getelementptr inbounds (%struct.S, ptr @g, i32 0, i32 1) monotonic, align 4
  store atomic i32 %a, ptr getelementptr inbounds (i8, ptr @g, i64 4) release, align 4
  store atomic i64 ptrtoint (ptr @g to i64), ptr inttoptr (i64 4096 to ptr) seq_cst, align 8
  %b = atomicrmw add ptr getelementptr inbounds (%struct.S, ptr @g, i32 0, i32 2, i64 1), i64 %x seq_cst, align 8
  %c = cmpxchg ptr getelementptr (i8, ptr @g, i64 8), i64 ptrtoint (ptr @g to i64), i64 %b acq_rel monotonic, align 8
  store volatile ptr getelementptr inbounds (i8, ptr @g, i64 8), ptr inttoptr (i64 4104 to ptr), align 8
  store i64 %x, ptr getelementptr inbounds (%struct.S, ptr inttoptr (i64 8192 to ptr), i32 0, i32 2, i64 1), align 8
  %d = load i64, ptr addrspacecast (ptr addrspace(256) inttoptr (i64 64 to ptr addrspace(256)) to ptr), align 8
  ret i64 %d
}
"""


def test_constant_expressions_of_opaque_text_are_instrumented_and_valid() -> None:
    options = unit.UnitOptions("a.c", "/", "clang")
    head = 'target triple = "x86_64-pc-linux-gnu"\ntarget datalayout = "e-m:e-i64:64-f80:128-n8:16:32:64-S128"\n'
    text, facts = unit.instrument_text(head + OPAQUE, options)
    unit.verified(text, options)
    assert [(site.kind, site.variable) for site in facts.sites] == [
        ("load", "g"),
        ("atomic", "g"),
        ("atomic", ""),
        ("atomic", "g"),
        ("atomic", "g"),
        ("store", ""),
        ("store", "S.#2[]"),
        ("load", ""),
    ]
    assert facts.not_understood == ()
