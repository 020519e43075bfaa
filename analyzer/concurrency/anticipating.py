"""Anticipating invariants: the accesses of other threads that passing runs show just before each access (AI §2)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from crashcheck.analyzer.compile.learned_sets import LearnedSets, LearnedSite
from crashcheck.analyzer.compile.site_names import CHANGED, NamedSite, Namer, site_id
from crashcheck.analyzer.concurrency.observations import Log, ObservationKind
from crashcheck.analyzer.disjoint_sets import DisjointSets
from crashcheck.wording import listed

NOTHING = "nothing of another thread"
_LISTED = 8  # names of a hot group, which may have hundreds


@dataclass(frozen=True, slots=True)
class Seen:
    """A remote predecessor that a run showed. `before` is None for nil; `thread` made the first such access."""

    site: NamedSite
    before: NamedSite | None
    thread: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The interleavings of one run, in the order in which they first happened.

    `alone`: names of sites, each with that of another that accessed a variable before it in the same thread, when no
    other thread had; `addressed`: of sites that accessed a variable that the program named; `codes`: the hash of each
    function's code; `lost`: what is not there, in words. Whatever accessed one variable is connected by `seen` and
    `alone`.
    """

    seen: tuple[Seen, ...]
    alone: frozenset[tuple[str, str]]
    codes: Mapping[str, str]
    addressed: frozenset[str] = frozenset()
    lost: tuple[str, ...] = ()

    @property
    def accesses(self) -> int:
        """How many there were; one that spans variables counts for each."""
        return sum(seen.count for seen in self.seen)

    def groups(self) -> list[set[str]]:
        """The names of the run's sites, together if they accessed a same variable (AI §3.3)."""
        known = DisjointSets(seen.site.name for seen in self.seen)
        for seen in self.seen:
            if seen.before is not None:
                known.join(seen.site.name, seen.before.name)
        for pair in self.alone:
            known.join(*pair)
        return known.sets()

    def shared(self) -> set[str]:
        """The names of sites in whose group a variable was shared (AI §3.2, footnote)."""
        remote = {seen.site.name for seen in self.seen if seen.before is not None}
        return {name for group in self.groups() if group & remote for name in group}


@dataclass(frozen=True, slots=True)
class Violation:
    """An access that no passing run showed after `seen.before`. Observed before the access executes."""

    seen: Seen
    expected: tuple[NamedSite | None, ...]  # the predecessors that were learned, nil first

    def __str__(self) -> str:
        count = f", {self.seen.count} times" if self.seen.count > 1 else ""
        before = f"{self._text(self.seen.before)} of another thread" if self.seen.before else NOTHING
        expected = dict.fromkeys(self._text(site) if site else NOTHING for site in self.expected)
        return (
            f"{self.seen.site} (thread {self.seen.thread}{count}): after {before}; "
            f"in passing runs after {' or '.join(expected)}"
        )

    def _text(self, site: NamedSite) -> str:
        """Of two accesses to a variable in one line it is the kind and number that tells them apart."""
        before = self.seen.before
        text = str(site)
        if before is None or text != str(before) or text not in map(str, self.expected):
            return text
        _, kind, number = site.name.rsplit(":", 2)
        return f"{text} ({kind} {number} of {site.code})"


@dataclass(frozen=True, slots=True)
class Stall:
    """What a guarded program did about a violation, in all: `seconds` stalled, `resolved` times by an access of another
    thread, `unresolved` times until the longest stall was over."""

    violation: Violation
    seconds: float
    resolved: int
    unresolved: int

    def __str__(self) -> str:
        return f"{self.violation}; stalled {self.seconds * 1e3:.1f} ms: {self.resolved} resolved, {self.unresolved} not"

    def __add__(self, other: Stall) -> Stall:
        """Of two violations with the same text."""
        seen = self.violation.seen
        violation = replace(self.violation, seen=replace(seen, count=seen.count + other.violation.seen.count))
        resolved, unresolved = self.resolved + other.resolved, self.unresolved + other.unresolved
        return Stall(violation, self.seconds + other.seconds, resolved, unresolved)


@dataclass(frozen=True, slots=True)
class HotGroup:
    """Sites that are left alone (AI §3.3). `percent`: of the accesses to shared variables in training."""

    percent: float
    sites: tuple[NamedSite, ...]

    def __str__(self) -> str:
        names = list(dict.fromkeys(map(str, self.sites)))
        return f"{self.percent:.1f} % of the accesses to shared memory: {listed(names, _LISTED)}"


@dataclass(frozen=True, slots=True)
class Guarded:
    """The log of a guarded program, named. `untrained`: sites that training never ran, each with its accesses."""

    stalls: tuple[Stall, ...]
    untrained: tuple[tuple[NamedSite, int], ...]
    codes: Mapping[str, str]
    lost: tuple[str, ...]
    left_alone: tuple[HotGroup, ...] = ()

    @property
    def harmless(self) -> Observed:
        """If the run was right: what it did although no passing run had done so.

        A violation that was resolved never took place: it shows nothing, and must stay one. It is no sample of the
        accesses, so none is counted.
        """
        seen = tuple(replace(stall.violation.seen, count=0) for stall in self.stalls if stall.unresolved)
        return Observed(seen, frozenset(), self.codes)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run held against what was learned. `unjudged`: sites that were not learned, or whose code changed since."""

    violations: tuple[Violation, ...]
    unjudged: tuple[NamedSite, ...]


class AnticipatingInvariants(LearnedSets):
    """What passing runs taught of each site, to learn from more runs and to judge others by.

    Guarded are sites that accessed a shared variable (AI §3.2, footnote).
    """

    __slots__ = ()

    @property
    def predecessors(self) -> int:
        """Those of sites that accessed shared variables, nil included: what learning adds to."""
        return sum(len(one.before) for one in self.sites.values() if one.shared)

    @property
    def guarded(self) -> int:
        """How many sites are."""
        alone = self.left_alone()
        return sum(one.shared and one.group not in alone for one in self.sites.values())

    @property
    def levelled_at(self) -> int:
        """The last run (from 1) that added a predecessor; 0 if none did."""
        return max((number for number, count in enumerate(self.new, 1) if count), default=0)

    def hot_groups(self) -> tuple[HotGroup, ...]:
        """What is not guarded because it is hot, the hottest first."""
        alone = self.left_alone()
        return tuple(
            HotGroup(percent, tuple(one.site for _, one in sorted(self.sites.items()) if one.group == group))
            for group, percent in self.proportions().items()
            if group in alone
        )

    def learn(self, run: Observed) -> AnticipatingInvariants:
        """With what a passing run shows; what code that changed since had taught is forgotten."""
        kept = {name: one for name, one in self.sites.items() if self._holds(one.site, run)}
        gone = self.sites.keys() - kept.keys()
        sites = {name: replace(one, before=one.before - gone) for name, one in kept.items()}
        known = replace(self, sites=dict(sites)).predecessors
        named = {site.name: site for seen in run.seen for site in (seen.site, seen.before) if site is not None}
        before: dict[str, set[str | None]] = {}
        accesses: Counter[str] = Counter()
        for seen in run.seen:
            before.setdefault(seen.site.name, set()).add(seen.before.name if seen.before is not None else None)
            accesses[seen.site.name] += seen.count
        for name, site in named.items():
            one = sites.get(name) or LearnedSite(site, frozenset(), name, False)
            sites[name] = replace(
                one,
                site=site,
                before=one.before | before.get(name, set()),
                accesses=one.accesses + accesses[name],
                addressed=one.addressed or name in run.addressed,
            )
        learned = replace(self, sites=_grouped(sites, run), codes={**self.codes, **run.codes})
        return replace(learned, new=(*self.new, learned.predecessors - known))

    def judge(self, run: Observed) -> Judged:
        """The accesses of a run that its guarded sites did not make in any run learned from, in the run's order."""
        violations = []
        unjudged: dict[str, NamedSite] = {}
        shared = run.shared()
        harmless = self.harmless_reads()
        for seen in run.seen:
            one = self.sites.get(seen.site.name)
            if one is None or not self._holds(one.site, run):
                if seen.site.name in shared:
                    unjudged[seen.site.name] = seen.site
                continue
            before = seen.before.name if seen.before is not None else None
            if not one.shared or before in one.before or before in harmless.get(seen.site.name, ()):
                continue
            if seen.before is not None and self.codes.get(seen.before.code) != run.codes.get(seen.before.code):
                unjudged[seen.before.name] = seen.before
                continue
            violations.append(Violation(seen, self.expected(one)))
        return Judged(tuple(violations), tuple(unjudged[name] for name in sorted(unjudged)))

    def _holds(self, site: NamedSite, run: Observed) -> bool:
        """Whether the function of a learned site is not known to have changed."""
        return run.codes.get(site.code, self.codes.get(site.code)) == self.codes[site.code]

    def expected(self, one: LearnedSite) -> tuple[NamedSite | None, ...]:
        """The predecessors of a site, nil first."""
        sites = sorted((self.sites[name].site for name in one.before if name is not None), key=str)
        return (*((None,) if None in one.before else ()), *sites)


def observe(log: Log, folder: str | os.PathLike[str]) -> Observed:
    """The interleavings of a training run. Sources below `folder` are named relative to it."""
    namer = Namer(folder)
    ran = {*log.rows["site"].tolist(), *log.rows["before"].tolist()}
    names = {
        number: namer.named(unit, index)
        for unit in log.units
        for index in range(len(unit.sites))
        if (number := unit.key + index & 0xFFFFFFFFFFFFFFFF) in ran
    }
    known_ids = np.array([0, *names], np.uint64)
    has_names = np.isin(log.rows["site"], known_ids) & np.isin(log.rows["before"], known_ids)
    lost = log.not_exact
    if nameless := len(log.rows) - int(has_names.sum()):  # a process was killed before it had written the facts
        lost += (f"{nameless} observations of code whose facts are not in the log",)
    log = replace(log, rows=log.rows[has_names])
    merged: dict[tuple[str, str | None], Seen] = {}
    for row in log.of(ObservationKind.REMOTE):
        site, before = names[int(row["site"])], names[int(row["before"])] if row["before"] else None
        key = site.name, before.name if before is not None else None
        known = merged.get(key)  # of another unit that was compiled from the same source, or a row that was made twice
        count = int(row["count"]) + (known.count if known else 0)
        merged[key] = replace(known, count=count) if known else Seen(site, before, int(row["thread"]), count)
    alone = log.of(ObservationKind.SAME_THREAD)
    pairs = zip(alone["site"].tolist(), alone["before"].tolist(), strict=True)
    return Observed(
        tuple(merged.values()),
        frozenset((names[site].name, names[before].name) for site, before in pairs),
        namer.codes(log.units),
        frozenset(names[site].name for site in log.of(ObservationKind.ADDRESSED)["site"].tolist()),
        lost,
    )


def _grouped(sites: Mapping[str, LearnedSite], run: Observed) -> dict[str, LearnedSite]:
    """The sites with their groups after a run."""
    known = DisjointSets(one.group for one in sites.values())
    for members in run.groups():
        known.join(*(sites[name].group for name in members if name in sites))
    least = {group: min(groups) for groups in known.sets() for group in groups}
    remote = {seen.site.name for seen in run.seen if seen.before is not None}
    shared = {least[one.group] for name, one in sites.items() if one.shared or name in remote}
    return {
        name: replace(one, group=least[one.group], shared=least[one.group] in shared) for name, one in sites.items()
    }


def read_guarded(log: Log, learned: AnticipatingInvariants, folder: str | os.PathLike[str]) -> Guarded:
    """What a guarded program did, by the sets that it was built with; names are relative to `folder`."""
    namer = Namer(folder)
    named = [one.site for one in learned.sites.values()]
    named += [namer.named(unit, index) for unit in log.units for index in range(len(unit.sites))]
    names = {site_id(site.name): site for site in named}

    def name(number: int) -> NamedSite:
        return names.get(number & ~CHANGED) or NamedSite(f"site {number & ~CHANGED:x}", "", "", "", "")

    stalls = []
    for row in log.of(ObservationKind.VIOLATION):
        site, before = name(int(row["site"])), name(int(row["before"])) if row["before"] else None
        one = learned.sites.get(site.name)
        seen = Seen(site, before, int(row["thread"]), int(row["count"]))
        violation = Violation(seen, learned.expected(one) if one is not None else ())
        stalls.append(Stall(violation, int(row["stalled_ns"]) / 1e9, int(row["resolved"]), int(row["unresolved"])))
    untrained = tuple((name(int(row["site"])), int(row["count"])) for row in log.of(ObservationKind.UNTRAINED))
    lost = log.not_exact
    if log.learned not in (0, learned.digest()):
        lost += ("what was expected, and left alone: other sets were learned since the program was built",)
    return Guarded(tuple(stalls), untrained, namer.codes(log.units), lost, learned.hot_groups())
