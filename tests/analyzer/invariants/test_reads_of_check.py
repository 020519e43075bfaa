"""What the check reads on the final image is evidence, too: for guards that the workload never tests."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.dependence.interprocedural import SiteDependence, SiteRef
from crashcheck.analyzer.compile.facts import ProgramFacts, UnitFacts
from crashcheck.analyzer.invariants.check_reads import CheckReads, find_check_reads
from crashcheck.analyzer.invariants.inference import Inferred, infer_from
from crashcheck.runtime.trace_format import NO_INSTANCE
from support.scripts import Run, claims, given, site
from support.tracing import TraceBuilder

X, Y, Z = 0, 64, 128  # fields of a box, in lines of their own
STORE_X, STORE_Y, LOAD_Z, STORE_Z = 1, 2, 3, 4
WORKLOAD = (
    site("box.x", ("box", "x", X, 8), line=1),
    site("box.y", ("box", "y", Y, 8), line=2),
    site("box.z", ("box", "z", Z, 8), kind="load", line=3),
    site("box.z", ("box", "z", Z, 8), line=4),
)
CHECK_KEY = 78
CHECK = (
    site("box.z", ("box", "z", Z, 8), kind="load", line=70, file="/src/check.c"),
    site("box.x", ("box", "x", X, 8), kind="load", line=71, file="/src/check.c"),
    site("box.y", ("box", "y", Y, 8), kind="load", line=72, file="/src/check.c"),
)


@dataclass(frozen=True)
class Given:
    """Dependences of the check's own unit, by site number (from 1)."""

    table: dict[int, dict[int, str]]

    def of(self, at: SiteRef) -> tuple[SiteDependence, ...]:
        if at.unit != CHECK_KEY:
            return ()
        return tuple(
            SiteDependence(at, SiteRef(CHECK_KEY, on - 1), "c" in how, "a" in how, "v" in how, False)
            for on, how in self.table.get(at.index + 1, {}).items()
        )


def checked(folder: Path, reads: list[tuple[str, int, int]], depends: dict[int, dict[int, str]]) -> CheckReads:
    """A check that reads (file, site, offset) in order."""
    trace = TraceBuilder(folder / "check.cct")
    for file in dict.fromkeys(file for file, _, _ in reads):
        trace.file(file, 4096)
    base = trace.unit(CHECK_KEY, len(CHECK), "/bin/check")
    for file, number, offset in reads:
        delta = {1: Z, 2: X, 3: Y}[number]
        trace.load(file, offset, 8, site=base + number - 1, instance_delta=delta)
    unit = UnitFacts("/src/check.c", "/src", "clang", "llvmlite", CHECK, key=CHECK_KEY)
    return find_check_reads(trace.trace(), ProgramFacts({CHECK_KEY: unit}, (), ()), Given(depends))


def both(made: Run, reads: CheckReads | None) -> Inferred:
    return infer_from(made.found(), made.facts, made.given, reads)


def writes(folder: Path, depends: dict[int, dict[int, str]] | None = None) -> Run:
    """Writes x and then y of one box, and reads nothing; nothing is flushed."""
    made = Run(folder, *WORKLOAD, depends=depends or {})
    made.at(STORE_X, X, delta=X)
    made.at(STORE_Y, Y, delta=Y)
    return made


def test_a_field_that_only_the_check_tests_guards_what_it_reads_next(tmp_path: Path) -> None:
    reads = checked(tmp_path, [("f", 3, Y), ("f", 2, X)], {2: {3: "c"}})
    made = writes(tmp_path)
    assert both(made, None).invariants == ()
    (one,) = both(made, reads).invariants
    assert (one.rule, one.first.text, one.then.text, one.shared) == ("RO3", "box.x", "box.y", "box")
    assert (one.held, one.violated) == (0, 1)
    (read,) = one.reads
    assert (read.access.file, read.access.line, read.on.line, read.times) == ("/src/check.c", 71, 72, 1)
    (query,) = both(made, reads).queries
    offset = made.found().graph.offset
    assert [int(offset[piece]) for piece in (*query.persisted, *query.unpersisted)] == [Y, X]


def test_two_guards_of_the_check_persist_together(tmp_path: Path) -> None:
    reads = checked(tmp_path, [("f", 3, Y), ("f", 2, X), ("f", 1, Z)], {1: {3: "c", 2: "c"}})
    assert claims(both(writes(tmp_path), reads)) == [("RA1", "box.x", "box.y", 0, 1)]


def test_files_are_identified_by_their_path_and_others_are_left_out(tmp_path: Path) -> None:
    reads = checked(tmp_path, [("other", 3, Y), ("other", 2, X), ("f", 3, Y), ("f", 2, X)], {2: {3: "c"}})
    (one,) = both(writes(tmp_path), reads).invariants
    assert one.times == 1
    elsewhere = checked(tmp_path, [("other", 3, Y), ("other", 2, X)], {2: {3: "c"}})
    assert both(writes(tmp_path), elsewhere).invariants == ()


def test_a_load_of_the_check_never_gives_a_store_of_the_workload_its_value(tmp_path: Path) -> None:
    """The workload's own load would: but it did not run."""
    reads = checked(tmp_path, [("f", 1, Z), ("f", 3, Y), ("f", 2, X)], {})
    made = writes(tmp_path, {STORE_Y: {LOAD_Z: "v"}})
    made.at(STORE_Z, Z, delta=Z)
    assert both(made, reads).invariants == ()


@pytest.mark.parametrize("seed", range(20))
def test_what_the_workload_itself_taught_stays(tmp_path: Path, seed: int) -> None:
    """Rules, fields and counts of a random run are the same with random reads of a check; there may be more."""
    chance = random.Random(seed)
    depends = {STORE_X: {LOAD_Z: "v"}, STORE_Y: {LOAD_Z: chance.choice("cav")}}
    made = Run(tmp_path, *WORKLOAD, depends=depends)
    for _ in range(30):
        box, number = 512 * chance.randrange(4), chance.randrange(1, 5)
        field = {STORE_X: X, STORE_Y: Y, LOAD_Z: Z, STORE_Z: Z}[number]
        if number == LOAD_Z:
            made.load(number, box + field, delta=field)
        else:
            made.at(number, box + field, delta=field)
        if chance.random() < 0.3:
            made.persist(box + field)
    many = chance.randrange(10)
    offset = {1: Z, 2: X, 3: Y}
    numbers = [chance.randrange(1, 4) for _ in range(many)]
    reads = checked(tmp_path, [("f", n, 512 * chance.randrange(4) + offset[n]) for n in numbers], {2: {3: "c"}})
    alone = {(c.rule, c.first, c.then, c.shared, c.times, c.held, c.violated) for c in both(made, None).invariants}
    joined = {(c.rule, c.first, c.then, c.shared, c.times, c.held, c.violated) for c in both(made, reads).invariants}
    assert alone
    assert alone <= joined
    assert all(rule in ("RO3", "RA1") for rule, *_ in joined - alone)


def test_a_check_that_shares_a_unit_with_the_workload_has_the_same_sites(tmp_path: Path) -> None:
    folder = tmp_path / "check"
    folder.mkdir()
    again = Run(folder, *WORKLOAD, depends={})
    again.load(LOAD_Z, Z, delta=Z)
    again.load(LOAD_Z, 512 + Z, delta=NO_INSTANCE)
    made = writes(tmp_path, {STORE_Y: {LOAD_Z: "c"}})
    reads = find_check_reads(again.trace.trace(), again.facts, given())
    trace, rows, _ = reads.after(made.trace.trace(), reads.rows, reads.joined)
    assert trace.units == made.trace.trace().units
    assert set(rows.columns.site.tolist()) == {LOAD_Z}
