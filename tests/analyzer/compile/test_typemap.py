"""A store's field is named through members, arrays, unions, typedefs, templates, references and pointer locals."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts, TypeStep
from crashcheck.analyzer.compile.ir.text import Layout, Types, operand, split_commas, type_end

Build = Callable[..., Path]
Run = Callable[..., list[str]]

SHAPES = """
#include <new>
#include <utility>
namespace db { struct Slot { long key; char tag[8]; };
template <class T> struct Box { T value; int count; void set(T v) {
    value = v; } };
class Base { public: virtual ~Base() {} int id; };
class Node : public Base { public:
    Slot slots[4]; Node *next; union { long number; void *pointer; struct { short lo, hi; }; };
    unsigned valid : 1, dirty : 3; Box<double> box;
    void link(Node *n) {
        next = n; } };
enum class E : int { A, B };
struct Wrap { struct { int x, y; } point; E e; bool flag; long &ref; }; }
typedef struct { int a; int b[3]; } plain;
struct tree { struct tree *kids[4]; plain p; };
using namespace db; struct Page { long leaf; union { long value[4]; int child[4]; }; };
int main(int argc, char **) {
    Node *n = new (pool) Node; OPAQUE(n);
    tree *t = (tree *)(pool + 1024); OPAQUE(t);
    Wrap *w = (Wrap *)(pool + 512); OPAQUE(w);
    int i = argc;
    watch(pool, sizeof pool);
    n->slots[i].key = 1;
    n->slots[i].tag[i + 1] = 2;
    n->link(n);
    n->number = 3;
    n->pointer = nullptr;
    n->hi = 4;
    n->valid = 1;
    n->box.set(1.0);
    n->id = 5;
    w->point.y = 6;
    w->e = E::B;
    w->flag = true;
    t->kids[i] = nullptr;
    t->p.b[i] = 7;
    plain *p = &t->p;
    p->a = 8;
    int *q = &t->p.b[1];
    *q = 9;
    long &key = n->slots[1].key;
    key = 10;
    Slot *s = n->slots;
    s += i;
    s->key = 11;
    Slot *u = &n->slots[2];
    u[1].key = 12;
    tree many[1]; tree *m = many;
    m->p.a = 13;
    plain *array = (plain *)(pool + 2048); OPAQUE(array);
    array[i] = array[0];
    Box<long> *b = (Box<long> *)(pool + 3000); OPAQUE(b);
    b->set(4);
    Page *page = (Page *)(pool + 3200); OPAQUE(page);
    page->value[i] = 14;
    page->child[i] = 15;
    std::swap(n->slots[0].key, n->slots[1].key);
    return 0;
}
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O1", "-g", "-fno-strict-aliasing")])
def test_fields_and_instances_are_found(recorded: Run, clang: str, flags: tuple[str, ...]) -> None:
    inside = r"(?:db::Node::|db::Box<\w+>::|std::(?:__1::)?)?"  # libc++ has an inline namespace within std
    found = []
    for line in recorded(SHAPES, *flags, cxx=True, clang=clang):
        parts = re.match(rf"\w+ @(\d+) \w+(?: flags=0)?(?: instance=(\d+))? \|(.*) at {inside}(\w+)", line)
        assert parts is not None, line
        found.append((parts[3].strip(), int(parts[1]), int(parts[2]) if parts[2] else None, parts[4]))
    assert found == [
        ("Node.slots[].key", 32, 0, "main"),
        ("Node.slots[].tag[]", 42, 0, "main"),
        ("Node.next", 80, 0, "link"),
        ("Node.number", 88, 0, "main"),
        ("Node.pointer", 88, 0, "main"),
        ("Node.hi", 90, 0, "main"),
        ("Node.valid|dirty", 96, 0, "main"),
        ("Box.value", 104, 104, "set"),
        ("Base.id", 8, 0, "main"),
        ("Wrap.point.y", 516, 512, "main"),
        ("Wrap.e", 520, 512, "main"),
        ("Wrap.flag", 524, 512, "main"),
        ("tree.kids[]", 1032, 1024, "main"),
        ("tree.p.b[]", 1064, 1024, "main"),
        ("tree.p.a", 1056, 1024, "main"),
        ("tree.p.b[]", 1064, 1024, "main"),
        ("Node.slots[].key", 32, 0, "main"),
        ("Slot.key", 32, 32, "main"),
        ("Node.slots[].key", 64, 0, "main"),
        ("plain", 2064, 2064, "main"),
        ("Box.value", 3000, 3000, "set"),
        ("Page.value[]", 3216, 3200, "main"),
        ("Page.child[]", 3212, 3200, "main"),
        ("", 16, None, "swap"),
        ("", 32, None, "swap"),
    ]


ATOMICS = """
#include <atomic>
struct Leaf { long key; std::atomic<Leaf *> next; std::atomic<bool> taken; std::atomic<long> version; };
int main() {
    Leaf *leaf = (Leaf *)(pool + 64); OPAQUE(leaf);
    watch(pool, sizeof pool);
    leaf->next.store(leaf, std::memory_order_release);
    leaf->taken.exchange(true);
    leaf->version = 4;
    leaf->version += 2;
    Leaf *none = leaf;
    leaf->next.compare_exchange_strong(none, nullptr);
    return 0;
}
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-g")])
def test_an_atomic_member_is_a_field_of_its_class_and_no_instance_of_its_own(
    recorded: Run, clang: str, flags: tuple[str, ...]
) -> None:
    lines = recorded(ATOMICS, *flags, cxx=True, clang=clang)
    stores = [re.search(r"@(\d+) .*instance=(\d+) \|(.*) at ", line) for line in lines if " | at " not in line]
    assert [(found[3].strip(), found[1], found[2]) for found in stores if found] == [
        ("Leaf.next", "72", "64"),
        ("Leaf.taken", "80", "64"),
        ("Leaf.version", "88", "64"),
        ("Leaf.version", "88", "64"),
        ("Leaf.next", "72", "64"),
    ]


ELSEWHERE = """
struct Pair { long key, value; };
class Directory { long capacity; bool lock; int depth; public:
    Directory();
    void set(long n) { capacity = n; lock = true; depth = 3; } };
class Base { protected: int id; public: virtual void key(); };
template <class T, int N> class Ring : public Base { T items[N]; unsigned head; public:
    Ring();
    void push(T item) { items[head % N] = item; head++; id = 4; } };
class Deep : public Ring<long, 4> { Pair pair; Directory inside; public:
    Deep();
    void poke(long n) { pair.value = n; inside.set(n); push(n); } };
int main() {
    Directory *d = (Directory *)pool; Deep *deep = (Deep *)(pool + 512); OPAQUE(d); OPAQUE(deep);
    watch(pool, sizeof pool);
    d->set(1);
    deep->poke(2);
    return 0;
}
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-g"), ("-O1", "-g1", "-fno-standalone-debug")])
def test_members_have_names_where_constructors_and_virtual_functions_are_in_another_unit(
    build: Build, clang: str, flags: tuple[str, ...]
) -> None:
    """clang leaves such classes out of the debug information of this unit, unless it is asked for them."""
    (unit,) = ProgramFacts.load([build(ELSEWHERE, *flags, cxx=True, clang=clang)]).units.values()
    assert {site.variable for site in unit.sites if site.kind == "store" and site.variable} >= {
        "Directory.capacity",
        "Directory.lock",
        "Directory.depth",
        "Deep.pair.value",
        "Ring.items[]",
        "Ring.head",
        "Base.id",
    }
    assert not [site.variable for site in unit.sites if "#" in site.variable]


def test_steps_go_from_the_field_out_to_the_instance(build: Build) -> None:
    (unit,) = ProgramFacts.load([build(SHAPES, "-O1", cxx=True)]).units.values()
    (site,) = [site for site in unit.sites if site.kind == "store" and site.line == 24]
    assert site.steps == (TypeStep("Slot", "key", 0, 8), TypeStep("Node", "slots", 16, 64))
    (site,) = [site for site in unit.sites if site.kind == "store" and site.line == 29]
    assert site.steps == (
        TypeStep("(anonymous)", "hi", 2, 2),
        TypeStep("(anonymous)", "", 0, 4),
        TypeStep("Node", "", 88, 8),
    )


def test_a_pointer_that_several_stores_or_a_callee_may_set_is_not_followed(recorded: Run) -> None:
    source = """
struct a { int x, y; }; struct b { int u, v; };
__attribute__((noinline)) static void move(int **p) { (*p)++; }
int main(int argc, char **argv) {
    (void)argv;
    struct a *a = (struct a *)pool; struct b *b = (struct b *)(pool + 64); OPAQUE(a); OPAQUE(b);
    watch(pool, sizeof pool);
    int *p = &a->x;
    if (argc > 1) p = &b->v;
    *p = 1;
    int *q = &a->x;
    move(&q);
    *q = 2;
    return 0;
}
"""
    assert recorded(source, "-O2", "-fno-inline") == [
        "store @0 01000000 flags=0 | at main:10",
        "store @4 02000000 flags=0 | at main:13",
    ]


TYPES = Types(
    {
        "%struct.slot": "{ i64, i8 }",
        "%struct.node": "{ i32, %union.anon, [4 x %struct.slot], i8 }",
        "%union.anon": "{ i32 }",
        "%packed": "<{ i8, i64, %struct.slot }>",
        "%opaque": "opaque",
        '%"class.std::x"': "{ ptr, <4 x float>, x86_fp80, i128 }",
    }
)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("i1", Layout(1, 1)),
        ("i24", Layout(4, 4)),
        ("i128", Layout(16, 16)),
        ("x86_fp80", Layout(16, 16)),
        ("ptr", Layout(8, 8)),
        ("%struct.slot", Layout(16, 8)),
        ("%struct.node", Layout(80, 8)),
        ("%packed", Layout(25, 1)),
        ("[3 x %packed]", Layout(75, 1)),
        ("{ i8, { i16, [0 x i64] } }", Layout(16, 8)),
        ("<4 x i1>", Layout(1, 1)),
        ("%opaque", None),
        ("<vscale x 4 x i32>", None),
        ('%"class.std::x"', Layout(64, 16)),
    ],
)
def test_layouts_are_those_of_x86_64(text: str, layout: Layout | None) -> None:
    assert TYPES.layout(text) == layout


def test_operands_are_read_past_attributes_and_strings() -> None:
    value = operand(
        'ptr noundef nonnull align 8 dereferenceable(24) "a"="b" getelementptr inbounds (i8, ptr @x, i64 4)'
    )
    assert (value.type, value.value) == ("ptr", "getelementptr inbounds (i8, ptr @x, i64 4)")
    assert operand("ptr byval(%struct.s) align 16 %3").value == "%3"
    assert operand("<2 x i64> splat (i64 3)").value == "splat (i64 3)"
    assert operand("i1 true").value == "true"
    assert operand("i64 range(i64 0, 9) sub (i64 0, i64 1)").value == "sub (i64 0, i64 1)"
    assert operand('%"a b, c" zeroinitializer').type == '%"a b, c"'
    assert split_commas('ptr @"a,(b", { i8, i8 } { i8 1, i8 2 }, [1 x i8] c"\\22,"') == [
        'ptr @"a,(b"',
        "{ i8, i8 } { i8 1, i8 2 }",
        '[1 x i8] c"\\22,"',
    ]
    assert type_end("ptr addrspace(3) %x", 0) == len("ptr addrspace(3)")


UNDECIDED = """
template <int N> struct Page;
template <> struct Page<1> { long next_insert_offset, used; };
template <> struct Page<2> { long version_lock, entries; };
template <class T> struct Even { long first; T second; };
Page<1> *one(); Page<2> *two(); Even<long> *longs(); Even<double> *doubles();
int main() { one()->used = 1; two()->entries = 2; longs()->second = 3; doubles()->second = 4; }
"""


def test_of_specialisations_of_a_template_no_field_is_named_that_only_one_has(
    build: Build, clang: str
) -> None:
    (unit,) = ProgramFacts.load([build(UNDECIDED, "-c", cxx=True, clang=clang)]).units.values()
    variables = [site.variable for site in unit.sites if site.kind == "store"]
    assert variables == ["Page.#1", "Page.#1", "Even.second", "Even.second"]
