"""Each rule of Witcher's Table 1: its condition gives its invariant and its state; nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies.violations import states_of
from support.scripts import Run, claims, site

LOAD_X, LOAD_Y, STORE_X, STORE_Y, LOAD_N = 1, 2, 3, 4, 5
X, Y, N = 0, 64, 128  # in lines of their own
SITES = (
    site("box.x", ("box", "x", X, 8), kind="load", line=10),
    site("box.y", ("box", "y", Y, 8), kind="load", line=11),
    site("box.x", ("box", "x", X, 8), line=12),
    site("box.y", ("box", "y", Y, 8), line=13),
    site("box.n", ("box", "n", N, 8), kind="load", line=14),
)


def run(folder: Path, depends: dict[int, dict[int, str]]) -> Run:
    """Reads x, then y; then writes x and y, of one box; nothing is flushed."""
    made = Run(folder, *SITES, depends=depends)
    made.load(LOAD_X, X, delta=X)
    made.load(LOAD_Y, Y, delta=Y)
    made.load(LOAD_N, N, delta=N)
    return made


def asked(made: Run) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """(rule, persisted, unpersisted) of all queries, pieces named by the offset that they write."""
    found = made.found()
    return [
        (
            query.signature[0],
            tuple(int(found.graph.offset[piece]) for piece in query.persisted),
            tuple(int(found.graph.offset[piece]) for piece in query.unpersisted),
        )
        for query in made.inferred().queries
    ]


@pytest.mark.parametrize("how", ["v", "a"])
def test_RO1_a_store_that_depends_on_data_read_wants_the_latter_persisted_first(tmp_path: Path, how: str) -> None:
    made = run(tmp_path, {STORE_Y: {LOAD_X: how}})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred()) == [("RO1", "box.x", "box.y", 0, 1)]
    assert asked(made) == [("RO1", (Y,), (X,))]


def test_RO2_a_store_that_depends_on_a_test_wants_what_was_tested_persisted_first(tmp_path: Path) -> None:
    made = run(tmp_path, {STORE_Y: {LOAD_X: "c"}})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred()) == [("RO2", "box.x", "box.y", 0, 1)]
    assert asked(made) == [("RO2", (Y,), (X,))]


def test_RO3_a_guarded_read_wants_what_is_guarded_persisted_before_its_guardian(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_Y: {LOAD_X: "c"}})
    made.at(STORE_Y, Y, delta=Y)
    made.at(STORE_X, X, delta=X)
    assert claims(made.inferred()) == [("RO3", "box.y", "box.x", 0, 1)]
    assert asked(made) == [("RO3", (X,), (Y,))]


def test_RA1_two_guardians_want_to_persist_together_and_either_may_be_the_one_that_did(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_N: {LOAD_X: "c", LOAD_Y: "c"}})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred()) == [("RA1", "box.x", "box.y", 0, 1)]
    assert sorted(asked(made)) == [("RA1", (X,), (Y,)), ("RA1", (Y,), (X,))]


def test_one_guardian_that_is_updated_wants_nothing_persisted_with_it(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_N: {LOAD_X: "c"}})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred()) == []


def test_a_load_that_depends_on_data_alone_guards_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_Y: {LOAD_X: "a"}})
    made.at(STORE_Y, Y, delta=Y)
    made.at(STORE_X, X, delta=X)
    assert claims(made.inferred()) == []


def test_what_was_flushed_and_fenced_in_between_is_held_and_asks_for_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, {STORE_Y: {LOAD_X: "v"}})
    made.at(STORE_X, X, delta=X)
    made.persist(X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred()) == [("RO1", "box.x", "box.y", 1, 0)]
    assert asked(made) == []


def test_a_flush_without_its_fence_holds_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, {STORE_Y: {LOAD_X: "v"}})
    made.at(STORE_X, X, delta=X)
    made.trace.clwb("f", X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred()) == [("RO1", "box.x", "box.y", 0, 1)]


def test_the_order_of_one_line_holds_an_invariant(tmp_path: Path) -> None:
    sites = (
        site("pair.x", ("pair", "x", 0, 8), kind="load"),
        site("pair.x", ("pair", "x", 0, 8)),
        site("pair.y", ("pair", "y", 8, 8)),
    )
    made = Run(tmp_path, *sites, depends={3: {1: "v"}})
    made.load(1, 0, delta=0)
    made.at(2, 0, delta=0)
    made.at(3, 8, delta=8)
    assert claims(made.inferred()) == [("RO1", "pair.x", "pair.y", 1, 0)]
    assert asked(made) == []


def test_one_line_lets_a_later_update_be_missing(tmp_path: Path) -> None:
    sites = (
        site("pair.x", ("pair", "x", 0, 8), kind="load"),
        site("pair.x", ("pair", "x", 0, 8)),
        site("pair.y", ("pair", "y", 8, 8)),
    )
    made = Run(tmp_path, *sites, depends={3: {1: "v"}})
    made.load(1, 0, delta=0)
    made.at(3, 8, delta=8)
    made.at(2, 0, delta=0)
    assert claims(made.inferred()) == [("RO1", "pair.x", "pair.y", 0, 1)]
    assert asked(made) == [("RO1", (8,), (0,))]


def test_under_eadr_nothing_that_is_older_may_be_missing(tmp_path: Path) -> None:
    made = run(tmp_path, {STORE_Y: {LOAD_X: "v"}})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred("eadr")) == [("RO1", "box.x", "box.y", 1, 0)]
    assert list(made.inferred("eadr").queries) == []


def test_what_one_instance_teaches_holds_for_all(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_Y: {LOAD_X: "c"}})
    other = 1024
    made.at(STORE_Y, other + Y, delta=Y)
    made.at(STORE_X, other + X, delta=X)
    assert claims(made.inferred()) == [("RO3", "box.y", "box.x", 0, 1)]
    assert asked(made) == [("RO3", (other + X,), (other + Y,))]


def test_updates_of_two_boxes_do_not_violate_what_holds_within_one(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_Y: {LOAD_X: "c"}})
    made.at(STORE_Y, Y, delta=Y)
    made.at(STORE_X, 1024 + X, delta=X)
    assert claims(made.inferred()) == []


def test_a_missing_flush_is_asked_for_in_later_operations(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_Y: {LOAD_X: "c"}})
    made.trace.begin(1)
    made.at(STORE_Y, Y, delta=Y)
    made.trace.end(1)
    made.trace.begin(2)
    made.at(STORE_X, X, delta=X)
    made.persist(X)
    made.trace.end(2)
    assert asked(made) == [("RO3", (X,), (Y,))]
    assert claims(made.inferred()) == [("RO3", "box.y", "box.x", 0, 1)]


def test_rules_that_contradict_each_other_are_both_kept(tmp_path: Path) -> None:
    made = run(tmp_path, {STORE_Y: {LOAD_X: "v"}, LOAD_Y: {LOAD_X: "c"}})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_Y, Y, delta=Y)
    assert claims(made.inferred()) == [("RO1", "box.x", "box.y", 0, 1), ("RO3", "box.y", "box.x", 0, 1)]
    assert sorted(asked(made)) == [("RO1", (Y,), (X,)), ("RO3", (X,), (Y,))]


def test_a_read_of_what_is_written_implies_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, {STORE_X: {LOAD_X: "v"}})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_X, X, delta=X)
    assert claims(made.inferred()) == []


def test_instances_are_paired_as_the_reads_joined_them(tmp_path: Path) -> None:
    """A list: `head.first` leads to nodes; each write of a head goes with the node that its read led to."""
    sites = (
        site("head.first", ("head", "first", 0, 8), kind="load"),
        site("node.value", ("node", "value", 0, 8), kind="load"),
        site("head.first", ("head", "first", 0, 8)),
        site("node.value", ("node", "value", 0, 8)),
    )
    made = Run(tmp_path, *sites, depends={2: {1: "c"}})
    made.trace.begin(1)
    made.at(4, 1024, delta=0)
    made.at(4, 2048, delta=0)
    made.at(3, 0, delta=0)
    made.trace.end(1)
    made.load(1, 0, delta=0)
    made.load(2, 1024, delta=0)
    offsets = asked(made)
    assert offsets == [("RO3", (0,), (1024,)), ("RO3", (0,), (2048,))]
    assert claims(made.inferred()) == [("RO3", "node.value", "head.first", 0, 2)]


def test_variables_without_a_type_are_named_by_place(tmp_path: Path) -> None:
    sites = (site(kind="load"), site(line=2), site(line=3))
    made = Run(tmp_path, *sites, depends={3: {1: "v"}})
    made.load(1, 0)
    made.at(2, 0)
    made.at(3, 64)
    assert claims(made.inferred()) == [("RO1", "f+0", "f+64", 0, 1)]


def test_a_struct_around_one_that_its_updates_do_not_name_is_known_from_reads(tmp_path: Path) -> None:
    sites = (
        site("bucket.entry[].key", ("entry", "key", 0, 8), ("bucket", "entry", 64, 64), kind="load"),
        site("bucket.used", ("bucket", "used", 0, 8), kind="load"),
        site("entry.key", ("entry", "key", 0, 8)),
        site("bucket.used", ("bucket", "used", 0, 8)),
    )
    made = Run(tmp_path, *sites, depends={1: {2: "c"}})
    made.load(2, 0, delta=0)
    made.load(1, 64, delta=64)
    made.at(3, 80, delta=0)
    made.at(4, 0, delta=0)
    assert claims(made.inferred()) == [("RO3", "bucket.entry[].key", "bucket.used", 0, 1)]


def test_states_that_queries_ask_for_exist(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_Y: {LOAD_X: "c"}})
    made.at(STORE_Y, Y, delta=Y)
    made.at(STORE_X, X, delta=X)
    space = StateSpace(made.found().graph)
    (query,) = made.inferred().queries
    for state in states_of(CanonicalStates(space), query):
        lost = set(space.lost(state))
        assert set(query.unpersisted) <= lost
        assert lost.isdisjoint(query.persisted)


def test_the_text_has_the_claim_the_reason_and_how_often(tmp_path: Path) -> None:
    made = run(tmp_path, {LOAD_Y: {LOAD_X: "c"}})
    made.at(STORE_Y, Y, delta=Y)
    made.at(STORE_X, X, delta=X)
    (one,) = made.inferred().invariants
    assert one.text == (
        "`box.y` must persist before `box.x`: program.c:11 reads `box.y` only after program.c:10 has tested "
        "`box.x` (RO3; held 0 times, may be violated 1 time)"
    )
    assert one.shared == "box"
    assert (one.number, one.times) == (1, 1)


def test_an_element_read_by_a_computed_index_belongs_to_the_struct_around_it(tmp_path: Path) -> None:
    sites = (
        site("bucket.valid[]", ("bucket", "valid", 0, 8), kind="load"),
        site("bucket.key", ("bucket", "key", 64, 8)),
        site("bucket.valid[]", ("bucket", "valid", 0, 8)),
    )
    made = Run(tmp_path, *sites, depends={2: {1: "c"}})
    made.at(3, 2, size=1, delta=2)
    made.load(1, 3, size=1)  # where the recorder does not know how far it is from the bucket
    made.at(2, 64, delta=64)
    assert claims(made.inferred()) == [("RO2", "bucket.valid[]", "bucket.key", 0, 1)]
