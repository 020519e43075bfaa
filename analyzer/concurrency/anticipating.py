"""Anticipating invariants: the accesses of other threads that passing runs show just before each access (AI §2)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from crashcheck.analyzer.concurrency.interleavings import NIL, collect_memory_accesses, find_interleavings
from crashcheck.analyzer.concurrency.stable_names import NamedSite, Namer
from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.errors import CrashcheckError

FORMAT = "crashcheck anticipating invariants"
VERSION = 1  # bump when a reader of the file would misread it
NOTHING = "nothing of another thread"
_HINT = "Remove it, and learn again with `crashcheck learn`."


@dataclass(frozen=True, slots=True)
class Seen:
    """A remote predecessor that a run showed. `before` is None for nil; `seq` and `thread` are of the first access."""

    site: NamedSite
    before: NamedSite | None
    seq: int
    thread: int
    many: int


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The interleavings of one run, in the order in which they first happened. `shared`: names of sites that accessed
    a variable which more than one thread accessed; `codes`: the hash of each function's code."""

    seen: tuple[Seen, ...]
    shared: frozenset[str]
    codes: Mapping[str, str]
    accesses: int


@dataclass(frozen=True, slots=True)
class Violation:
    """An access that no passing run showed after `seen.before`. Recorded before the access executes."""

    seen: Seen
    expected: tuple[str, ...]  # how the predecessors that were learned read, nil first

    def __str__(self) -> str:
        before = f"{self.seen.before} of another thread" if self.seen.before else NOTHING
        many = f", {self.seen.many} times" if self.seen.many > 1 else ""
        return (
            f"{self.seen.site} (thread {self.seen.thread}, access {self.seen.seq}{many}): after {before}; "
            f"in passing runs after {' or '.join(self.expected)}"
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """A run held against what was learned. `unjudged`: sites that were not learned, or whose code changed since."""

    violations: tuple[Violation, ...]
    unjudged: tuple[NamedSite, ...]


@dataclass(frozen=True, slots=True)
class _Learned:
    site: NamedSite
    shared: bool
    before: frozenset[str | None]


@dataclass(frozen=True, slots=True)
class AnticipatingInvariants:
    """What passing runs taught: of each site the belonging set, the names of its remote predecessors, None being nil.

    Guarded are sites that accessed a shared variable (AI §3.2, footnote); of the others the set is kept, for it
    counts if a later run shows them to share.
    """

    runs: int = 0
    sites: Mapping[str, _Learned] = field(default_factory=dict)
    codes: Mapping[str, str] = field(default_factory=dict)

    @property
    def many(self) -> int:
        """Predecessors of guarded sites, nil included: what one count of this is to another, learning has added."""
        return sum(len(one.before) for one in self.sites.values() if one.shared)

    @property
    def guarded(self) -> int:
        return sum(one.shared for one in self.sites.values())

    def learn(self, run: Observed) -> AnticipatingInvariants:
        """With what a passing run shows; what code that changed since had taught is forgotten."""
        codes = {**self.codes, **run.codes}
        kept = {name: one for name, one in self.sites.items() if self._holds(one.site, run)}
        gone = self.sites.keys() - kept.keys()
        sites = {name: replace(one, before=one.before - gone) for name, one in kept.items()}
        named = {site.name: site for seen in run.seen for site in (seen.site, seen.before) if site is not None}
        for name, site in named.items():
            one = sites.get(name)
            before = one.before if one is not None else frozenset[str | None]()
            sites[name] = _Learned(site, name in run.shared or (one is not None and one.shared), before)
        for seen in run.seen:
            one = sites[seen.site.name]
            before = one.before | {seen.before.name if seen.before is not None else None}
            sites[seen.site.name] = replace(one, before=before)
        return AnticipatingInvariants(self.runs + 1, sites, codes)

    def judge(self, run: Observed) -> Judged:
        """The accesses of a run that its guarded sites did not make in any run learned from, in the run's order."""
        violations = []
        unjudged: dict[str, NamedSite] = {}
        for seen in run.seen:
            one = self.sites.get(seen.site.name)
            if one is None or not self._holds(one.site, run):
                if seen.site.name in run.shared:
                    unjudged[seen.site.name] = seen.site
                continue
            if not one.shared or (seen.before.name if seen.before is not None else None) in one.before:
                continue
            if seen.before is not None and not self._was_there(seen.before, run):
                unjudged[seen.before.name] = seen.before
                continue
            violations.append(Violation(seen, self._words(one)))
        return Judged(tuple(violations), tuple(unjudged[name] for name in sorted(unjudged)))

    def _holds(self, site: NamedSite, run: Observed) -> bool:
        """Whether none of the functions in a learned site's name is known to have changed."""
        return all(
            run.codes.get(function, self.codes.get(function)) == self.codes[function] for function in site.functions
        )

    def _was_there(self, site: NamedSite, run: Observed) -> bool:
        """Whether the program that was learned from had this site."""
        return all(self.codes.get(function) == run.codes.get(function) for function in site.functions)

    def _words(self, one: _Learned) -> tuple[str, ...]:
        names = sorted(str(self.sites[name].site) for name in one.before if name is not None)
        return (*((NOTHING,) if None in one.before else ()), *names)

    # -- the file ----------------------------------------------------------------------------------------------

    def encode(self) -> str:
        """JSON, equal for equal contents, with one line per site."""
        head = {"format": FORMAT, "version": VERSION, "runs": self.runs}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        codes = [f"  {json.dumps(function)}: {json.dumps(code)}" for function, code in sorted(self.codes.items())]
        sites = []
        for name, one in sorted(self.sites.items()):
            document = {
                "site": name,
                "functions": one.site.functions,
                "where": one.site.where,
                "function": one.site.function,
                "variable": one.site.variable,
                "shared": one.shared,
                "before": sorted(one.before, key=lambda other: (other is not None, other or "")),
            }
            sites.append(f"  {json.dumps(document)}")
        lines.append('"codes": {\n' + ",\n".join(codes) + "\n }")
        lines.append('"sites": [\n' + ",\n".join(sites) + "\n ]")
        return "{\n " + ",\n ".join(lines) + "\n}\n"

    @classmethod
    def decode(cls, text: str, origin: str) -> AnticipatingInvariants:
        """Raises CrashcheckError learned-corrupt and learned-version, naming `origin`."""
        try:
            document = json.loads(text)
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise CrashcheckError("learned-corrupt", f"{origin} is no file of `crashcheck learn`.", _HINT)
            if document["version"] != VERSION:
                raise CrashcheckError(
                    "learned-version",
                    f"{origin} has version {document['version']}; this crashcheck reads version {VERSION}.",
                    _HINT,
                )
            sites = {
                str(one["site"]): _Learned(
                    NamedSite(one["site"], tuple(one["functions"]), one["where"], one["function"], one["variable"]),
                    bool(one["shared"]),
                    frozenset(one["before"]),
                )
                for one in document["sites"]
            }
            learned = cls(int(document["runs"]), sites, dict(document["codes"]))
            named = {name for one in sites.values() for name in one.before if name is not None}
            functions = {function for one in sites.values() for function in one.site.functions}
            if not named <= sites.keys() or not functions <= learned.codes.keys():
                raise ValueError("it names sites or functions that it does not define")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CrashcheckError("learned-corrupt", f"{origin} is damaged: {error!r}.", _HINT) from error
        return learned


def observe(trace: Trace, facts: Facts | None, folder: Path) -> Observed:
    """The interleavings of a run that recorded all memory; sources below `folder` are named relative to it."""
    found = collect_memory_accesses(trace, facts)
    run = find_interleavings(found)
    namer = Namer(folder)
    place = partial(trace.place, facts=facts)
    names = [namer.named(place(site), [place(caller) for caller in callers]) for site, callers in found.sites]
    units = [facts.unit(unit.key) for unit in trace.units] if facts is not None else []
    merged: dict[tuple[str, str | None], Seen] = {}
    for pair in run.pairs:
        site, before = names[pair.label], names[pair.before] if pair.before != NIL else None
        key = site.name, before.name if before is not None else None
        if key in merged:  # places with the same name
            merged[key] = replace(merged[key], many=merged[key].many + pair.many)
        else:
            merged[key] = Seen(site, before, int(found.seq[pair.first]), int(found.thread[pair.first]), pair.many)
    return Observed(
        tuple(merged.values()),
        frozenset(names[label].name for label in run.shared),
        namer.codes(unit for unit in units if unit is not None),
        len(found),
    )


def load(path: Path) -> AnticipatingInvariants:
    """The invariants in a file. Raises CrashcheckError learned-missing, learned-corrupt, learned-version."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CrashcheckError(
            "learned-missing", f"{path}: no such file.", "`crashcheck learn` makes it from passing runs."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CrashcheckError("learned-corrupt", f"{path} cannot be read: {error}.", _HINT) from error
    return AnticipatingInvariants.decode(text, str(path))


def save(learned: AnticipatingInvariants, path: Path) -> None:
    """Replaces the file in one step: an interruption leaves the old one. Raises CrashcheckError learned-unwritable."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        temporary.write_text(learned.encode(), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CrashcheckError("learned-unwritable", f"{path} cannot be written: {error.strerror}.") from error
