"""The guard finds the remote predecessors of AI §2.1 byte by byte, and judges by the sets as algorithm 1 does."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from crashcheck.analyzer.compile.site_names import SETTLED, NamedSite
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Observed, Seen
from crashcheck.analyzer.concurrency.observations import Log, ObservationKind, read_log
from crashcheck.runtime import build
from support import reference_guard
from support.compilers import c_compiler, sanitizing
from support.paths import RUNTIME_PROGRAMS
from support.reference_guard import NIL, Access, belonging_sets, violations

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
Run = Callable[[Iterable[str], str], Log]


@pytest.fixture(scope="module", params=["plain", "sanitized"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs programs/interleaved.c with lines and options of CRASHCHECK_GUARD, and gives the log."""
    folder = tmp_path_factory.mktemp("interleaved")
    flags = SANITIZERS if request.param == "sanitized" else ()
    compiler = [sanitizing("gcc", *SANITIZERS)[0]] if flags else c_compiler()
    sources = [*build.guard_sources(), RUNTIME_PROGRAMS / "interleaved.c"]
    command = [*compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *flags]
    program = folder / "interleaved"
    subprocess.run([*command, f"-I{build.INCLUDE}", *map(str, sources), "-o", str(program), "-lpthread"], check=True)

    def once(lines: Iterable[str], options: str = "") -> Log:
        log = folder / "log"
        log.unlink(missing_ok=True)
        environment = {"CRASHCHECK_GUARD": f"{options}log={log}", "ASAN_OPTIONS": "detect_leaks=0"}
        subprocess.run(
            [program], input="".join(f"{line}\n" for line in lines), text=True, env=environment, check=True, timeout=60
        )
        return read_log(log)

    return once


def pairs_of(log: Log, kind: ObservationKind) -> list[tuple[int, int]]:
    """(site, predecessor) in the order in which they were first seen; ids of the unit with key 0, so that nil is 0."""
    rows = log.of(kind)
    return list(zip(rows["site"].tolist(), rows["before"].tolist(), strict=True))


def lines_of(accesses: Iterable[Access]) -> list[str]:
    return [" ".join(map(str, access)) for access in accesses]


def interleaving(seed: int) -> list[Access]:
    """Accesses of two to four threads, most of them to words and their halves, some to bytes and to several words."""
    chance = random.Random(seed)
    sizes = chance.choice([(8,), (4, 8), (1, 2, 4, 8), (1, 3, 8, 24)])
    threads = chance.randint(2, 4)
    accesses = []
    for _ in range(chance.randint(1, 30)):
        size = chance.choice(sizes)
        offset = chance.randrange(0, 24, chance.choice([1, size]))
        accesses.append((chance.randint(1, threads), chance.randint(1, 6), offset, size))
    return accesses


# -- claims ------------------------------------------------------------------------------------------------------------

X, Y = 0, 8


def test_figure_3_an_access_of_the_same_thread_in_between_does_not_count(run: Run) -> None:
    """Thread 2: s1 writes x, s2 writes y, later s5 reads x. Thread 1: s3 reads x, s4 y, later s6 y, s7 x.

    The paper: rpre(i1) and rpre(i2) are nil, i3: s1, i4: s2, i5: s3, i6: s2 although i4 is nearer, i7: s5.
    """
    rows = [(2, 1, X, 8), (2, 2, Y, 8), (1, 3, X, 8), (1, 4, Y, 8), (2, 5, X, 8), (1, 6, Y, 8), (1, 7, X, 8)]
    log = run(["unit 0", *lines_of(rows)])
    assert pairs_of(log, ObservationKind.REMOTE) == [(1, NIL), (2, NIL), (3, 1), (4, 2), (5, 3), (6, 2), (7, 5)]


def test_figure_4_a_belonging_set_joins_all_executions_of_a_site(run: Run) -> None:
    rows = [(1, 1, X, 8), (2, 2, X, 8), (1, 3, X, 8), (2, 2, X, 8), (1, 3, X, 8)]
    log = run(["unit 0", *lines_of(rows)])
    assert pairs_of(log, ObservationKind.REMOTE) == [(1, NIL), (2, 1), (3, 2), (2, 3)]
    assert log.of(ObservationKind.REMOTE)["count"].tolist() == [1, 1, 2, 1]


def test_variables_that_overlap_share_their_common_bytes(run: Run) -> None:
    """Thread 1 writes eight bytes; thread 2 reads the first four, then all eight after thread 1 wrote the last four."""
    rows = [(1, 1, 0, 8), (2, 2, 0, 4), (1, 3, 4, 4), (2, 4, 0, 8)]
    log = run(["unit 0", *lines_of(rows)])
    assert sorted(pairs_of(log, ObservationKind.REMOTE)) == [(1, NIL), (2, 1), (3, NIL), (4, 1), (4, 3)]


def test_neighbouring_bytes_are_other_variables(run: Run) -> None:
    log = run(["unit 0", *lines_of([(1, 1, 0, 1), (2, 2, 1, 1), (1, 3, 0, 1)])])
    assert pairs_of(log, ObservationKind.REMOTE) == [(1, NIL), (2, NIL), (3, NIL)]


def test_memory_that_is_freed_is_forgotten_and_its_neighbours_are_not(run: Run) -> None:
    lines = ["unit 0", "1 1 0 8", "1 1 8 4", "1 1 12 4", "forget 0 12", "2 2 0 8", "2 3 8 4", "2 4 12 4"]
    assert pairs_of(run(lines), ObservationKind.REMOTE) == [(1, NIL), (2, NIL), (3, NIL), (4, 1)]


def test_a_thousand_interleavings_are_observed_as_the_definition_has_it(run: Run) -> None:
    lines = []
    for seed in range(1000):
        lines += [f"unit {seed * 1000}", *lines_of(interleaving(seed))]
    log = run(lines)
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for kind in (ObservationKind.REMOTE, ObservationKind.SAME_THREAD):
        for site, before in pairs_of(log, kind):
            found.setdefault((site // 1000, kind), set()).add((site % 1000, before % 1000))
    for seed in range(1000):
        sets = belonging_sets(interleaving(seed))
        assert found[seed, ObservationKind.REMOTE] == {(at, before) for at, its in sets.items() for before in its}, seed
        alone = reference_guard.followed_alone(interleaving(seed))
        assert found.get((seed, ObservationKind.SAME_THREAD), set()) == alone, seed


def violated(log: Log, unit: int) -> Counter[tuple[int, int]]:
    """For each site of a guarded unit and each predecessor how often that was a violation."""
    rows = log.of(ObservationKind.VIOLATION)
    rows = rows[rows["site"] // 1000 == unit]
    return Counter({(int(row["site"]) % 1000, int(row["before"]) % 1000): int(row["count"]) for row in rows})


def named(name: int | str) -> NamedSite:
    return NamedSite(str(name), "f", "", "", "")


def learned_from(log: Log, unit: int) -> AnticipatingInvariants:
    """What the run of one unit teaches; its sites have their numbers as names."""
    rows = log.rows[log.rows["site"] // 1000 == unit]
    remote, alone = (
        [(int(row["site"]) % 1000, int(row["before"]) % 1000, int(row["count"])) for row in rows[rows["kind"] == kind]]
        for kind in (ObservationKind.REMOTE, ObservationKind.SAME_THREAD)
    )
    seen = tuple(Seen(named(site), named(before) if before else None, 1, count) for site, before, count in remote)
    pairs = frozenset((str(site), str(before)) for site, before, _ in alone)
    return AnticipatingInvariants().learn(Observed(seen, pairs, {"f": ""}))


def test_groups_of_a_thousand_interleavings_are_those_of_the_definition(run: Run) -> None:
    lines = []
    for seed in range(1000):
        lines += [f"unit {seed * 1000}", *lines_of(interleaving(seed))]
    log = run(lines, "")
    for seed in range(1000):
        found: dict[str, set[int]] = {}
        learned = learned_from(log, seed)
        for name, one in learned.sites.items():
            found.setdefault(one.group, set()).add(int(name))
        expected = reference_guard.groups(interleaving(seed))
        assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected)), seed
        shared = {int(name) for name, one in learned.sites.items() if one.shared}
        assert shared == set().union(*reference_guard.shared_groups(interleaving(seed))), seed


def test_hot_groups_of_a_thousand_interleavings_are_left_alone_and_the_others_judged(run: Run) -> None:
    """Learned from one interleaving, guarded in another: accesses of sites that are left alone are not hooked."""
    lines, trained, tried = [], {}, {}
    for seed in range(1000):
        chance = random.Random(seed)
        hot = chance.randint(1, 6)  # variables of eight bytes: an access is one to one variable
        trained[seed], tried[seed] = (
            [(chance.randint(1, 3), chance.choice([hot, *range(1, 7)]), 8 * chance.randrange(6), 8) for _ in range(12)]
            for _ in range(2)
        )
        trained[seed] = [(thread, at, 8 * (at // 3), 8) if chance.random() < 0.8 else (thread, at, place, 8)
                         for thread, at, place, _ in trained[seed]]  # fmt: skip
        lines += [f"unit {seed * 1000}", *lines_of(trained[seed])]
    log = run(lines, "")
    alone = {}
    for seed in range(1000):
        learned, percent = replace(learned_from(log, seed), bias=(seed % 9 + 1) * 10), (seed % 9 + 1) * 10
        groups = learned.left_alone()
        alone[seed] = {int(name) for name, one in learned.sites.items() if one.group in groups}
        assert alone[seed] == reference_guard.left_alone(trained[seed], percent), seed
    assert 100 < sum(bool(sites) for sites in alone.values()) < 900
    for first in range(0, 1000, 100):
        lines, expected = [], {}
        for seed in range(first, first + 100):
            base, known = (seed + 1) * 1000, belonging_sets(trained[seed])
            sets = {site: known.get(site, set()) for site in range(1, 7)}
            lines.append(f"unit {base}")
            for site, its in sets.items():
                lines.append(" ".join(map(str, ["site", site, base + site, *(at and base + at for at in sorted(its))])))
            hooked = [access for access in tried[seed] if access[1] not in alone[seed]]
            lines += lines_of(hooked)
            expected[seed + 1] = violations(hooked, sets)
        log = run(lines, "stall=0,most=0,")
        for seed, found in expected.items():
            assert violated(log, seed) == found, seed


def test_settled_reads_are_judged_as_if_they_were_recorded(run: Run) -> None:
    """Sites 1 and 2 write two variables, 3 to 6 read; names of settled reads that follow one another count as one. Half
    of the interleavings have a variable whose reads are not settled; in half of all site 7 clears both, so that all
    sites are of one group."""
    names = {number: f"f:{'store' if number < 3 else 'load'}:{number}" for number in range(1, 7)} | {7: "f:fill:7"}
    number_of, skipped = {name: number for number, name in names.items()}, 0
    for first in range(0, 1000, 100):
        lines, expected, group_of = [], {}, {}
        for seed in range(first, first + 100):
            chance, base = random.Random(seed), (seed + 1) * 1000
            sites = {0: (1, 3, 4), 8: (2, 5, 6)}
            trained = [(1, 7, place, 8) for place in sites if seed % 4 < 2]
            trained += [(1, min(sites[place]), place, 8) for place in sites]
            trained += [(chance.randint(1, 3), chance.choice(sites[place][seed % 2 and 1:]), place, 8)
                        for place in (0, 8) for _ in range(6)]  # fmt: skip
            seen = tuple(
                Seen(named(names[site]), named(names[before]) if before else None, 1, 1)
                for site, its in belonging_sets(trained).items()
                for before in its
            )
            pairs = frozenset((names[at], names[before]) for at, before in reference_guard.followed_alone(trained))
            learned = AnticipatingInvariants().learn(Observed(seen, pairs, {"f": ""}))
            settled, harmless = learned.settled_reads(), learned.harmless_reads()
            skipped += bool(settled)
            lines.append(f"unit {base}")
            sets: dict[int, set[int]] = {site: set() for site in names}
            for name, one in learned.sites.items():
                sets[number_of[name]] = {
                    number_of[before] if before else NIL for before in one.before | harmless.get(name, frozenset())
                }
            for site, its in sets.items():
                group = settled.get(names[site], 0) if its else 0
                ids = [base + site + group * SETTLED, *(at and base + at for at in sorted(its))]
                lines.append(" ".join(map(str, ["site", site, *ids])))
                group_of[base + site] = -group or site
            at_random = (1, 2, *range(3, 7), *range(3, 7), *(name for name in (7,) if sets[name]))
            sizes = chance.choice(((1,), (2,), (4,), (8,), (2, 4, 8)))
            tried = [(chance.randint(1, 3), chance.choice(at_random), 8 * chance.randrange(2), chance.choice(sizes))
                     for _ in range(30)]  # fmt: skip
            lines += lines_of(tried)
            expected[seed + 1] = merged(violations(tried, sets), base, group_of), len(sizes) == 1
        log = run(lines, "stall=0,most=0,")
        for seed, (found, exactly) in expected.items():
            got = merged(violated(log, seed), seed * 1000, group_of)
            # An access to several variables counts once for each of their predecessors, which here may be one name.
            assert got == found if exactly else set(got) == set(found), seed
    assert 300 < skipped < 1000


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_settled_read_after_those_of_two_threads_is_not_recorded(run: Run, size: int) -> None:
    """The write of thread 1 is after the read of thread 3, as far as the record has it. A read of no bytes is none."""
    reads = [f"site {at} {at + SETTLED} 1 2 3 4" for at in (2, 3, 4)]
    accesses = [f"{thread} {site} 0 {size}" for thread, site in ((1, 1), (2, 2), (3, 3), (2, 4), (1, 1))]
    lines = ["unit 9", "site 1 1 0", *reads, *accesses[:-1], "2 4 0 0", accesses[-1]]
    assert pairs_of(run(lines, "most=0,"), ObservationKind.VIOLATION) == [(1, 3)]


def merged(found: Counter[tuple[int, int]], base: int, group_of: Mapping[int, int]) -> Counter[tuple[int, int]]:
    """Violations after predecessors that no check tells apart, together."""
    counts: Counter[tuple[int, int]] = Counter()
    for (site, before), count in found.items():
        counts[site, group_of.get(base + before, before)] += count
    return counts


def test_a_thousand_interleavings_are_judged_as_the_definition_has_it(run: Run) -> None:
    """Half of the sets lack what the interleaving shows; sites 5 and 6 were never trained, and are never judged."""
    for first in range(0, 1000, 100):  # a log of a guarded program holds some thousand observations
        lines, expected = [], {}
        for seed in range(first, first + 100):
            accesses, chance = interleaving(seed), random.Random(-seed)
            trained = belonging_sets(accesses)
            base = (seed + 1) * 1000
            sets = {site: {before for before in trained.get(site, ()) if chance.random() < 0.7} for site in range(1, 7)}
            sets[5] = sets[6] = set()
            lines.append(f"unit {base}")
            for site, known in sets.items():
                ids = [before and base + before for before in sorted(known)]
                lines.append(" ".join(map(str, ["site", site, base + site, *ids])))
            lines += lines_of(accesses)
            expected[seed + 1] = violations(accesses, sets)
        log = run(lines, "stall=0,most=0,")
        assert log.lost == ()
        for seed, found in expected.items():
            assert violated(log, seed) == found, seed
        rows = log.of(ObservationKind.VIOLATION)
        assert np.array_equal(rows["unresolved"], rows["count"])


def test_an_access_after_code_that_changed_is_not_judged(run: Run) -> None:
    changed = 1 << 63 | 2
    lines = ["unit 9", f"site 2 {changed}", "site 3 3 0 1", "1 2 0 8", "2 3 0 8"]
    log = run(lines, "most=0,")
    assert pairs_of(log, ObservationKind.VIOLATION) == []
    assert pairs_of(log, ObservationKind.UNTRAINED) == [(changed, 0)]


def test_stalls_that_are_in_vain_again_and_again_become_short(run: Run) -> None:
    """A second each, 300 of them would take five minutes."""
    lines = ["unit 9", "site 1 1 0 2", "site 2 2 0"]
    for _ in range(300):
        lines += ["1 1 0 8", "2 2 0 8"]
    log = run(lines, "stall=1000,most=1000,")
    (row,) = log.of(ObservationKind.VIOLATION)
    assert (int(row["count"]), int(row["unresolved"]), int(row["resolved"])) == (300, 300, 0)


def test_stalls_of_a_thread_that_follow_one_another_in_vain_become_short(run: Run) -> None:
    """A second each, 100 at sites of their own would take longer than the run may."""
    lines = []
    for base in range(1000, 101000, 1000):
        lines += [f"unit {base}", f"site 1 {base + 1} 0", f"site 2 {base + 2} 0", "1 1 0 8", "2 2 0 8"]
    log = run(lines, "stall=1000,most=1000,")
    rows = log.of(ObservationKind.VIOLATION)
    assert rows["unresolved"].tolist() == [1] * 100


def test_an_access_to_no_bytes_is_none(run: Run) -> None:
    log = run(["unit 9", "site 1 1", "1 1 0 0", "site 2 2 0", "2 2 0 0"])
    assert pairs_of(log, ObservationKind.UNTRAINED) == []
    assert pairs_of(log, ObservationKind.VIOLATION) == []
