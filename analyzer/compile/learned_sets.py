"""The belonging sets of a program's sites (AI §2.1), and the file that keeps them from one build to the next."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from crashcheck.analyzer.compile.site_names import SETTLED_GROUPS, NamedSite
from crashcheck.analyzer.disjoint_sets import DisjointSets
from crashcheck.errors import CrashcheckError

FORMAT = "crashcheck anticipating invariants"
VERSION = 5  # bump when a reader of the file would misread it
# Values of CRASHCHECK_THREADS for training: all accesses, and LEARN may be followed by WITHOUT_ATOMICS and OBJECTS;
# those that are marked, and MARKED is followed by the path of what was learned before. Any other value is the path of
# learned sets to guard with.
LEARN = "learn"
WITHOUT_ATOMICS = "+without-atomics"
OBJECTS = "+objects"
MARKED = "marked:"
TRAINING = frozenset(f"{LEARN}{atomics}{objects}" for atomics in ("", WITHOUT_ATOMICS) for objects in ("", OBJECTS))
_HINT = "Remove it, and learn again with `crashcheck learn`."


def _is_read(name: str | None) -> bool:
    """Whether a site, by its name, only reads; nil is none."""
    return name is not None and name.rpartition(":")[0].endswith(":load")


@dataclass(frozen=True, slots=True)
class LearnedSite:
    """A site with its belonging set: names of its remote predecessors, None being nil.

    `group`: the same for sites that ever accessed the same variable, and for sites of one group with a third (AI §3.3);
    the least name that a site of the group ever had. `shared`: some site of the group accessed a variable that several
    threads accessed. Of other sites the set is kept, for it counts if a later run shows them to share.
    `accesses`: how many there were; one to several variables counts for each. `addressed`: it accessed a variable
    that the program named (CRASHCHECK_GUARD_ADDRESS).
    """

    site: NamedSite
    before: frozenset[str | None]
    group: str
    shared: bool
    accesses: int = 0
    addressed: bool = False


@dataclass(frozen=True, slots=True)
class LearnedSets:
    """What passing runs taught.

    `new`: how many predecessors each run added, in the order of the runs; `sites`: by name; `codes`: the hash of each
    function's code, by NamedSite.code; `bias`: groups with more than this percentage of all accesses to shared
    variables are not guarded (AI §3.3), None: all are; `marked`: only accesses that the program marks were observed,
    and only those are guarded. `atomics`: atomic operations were observed, and are guarded; `objects`: the members of
    an instance have one record.
    """

    new: tuple[int, ...] = ()
    sites: Mapping[str, LearnedSite] = field(default_factory=dict)
    codes: Mapping[str, str] = field(default_factory=dict)
    bias: float | None = None
    marked: bool = False
    atomics: bool = True
    objects: bool = False

    @classmethod
    def untrained(cls, threads: str) -> Self:
        """Before the first run of training; `threads`: the value of CRASHCHECK_THREADS for that."""
        if threads not in TRAINING:  # a path may hold any words
            return cls(marked=threads.startswith(MARKED))
        return cls(atomics=WITHOUT_ATOMICS not in threads, objects=OBJECTS in threads)

    @property
    def training(self) -> str:
        """The value of CRASHCHECK_THREADS for training, if not of marked accesses."""
        return f"{LEARN}{'' if self.atomics else WITHOUT_ATOMICS}{OBJECTS if self.objects else ''}"

    @property
    def runs(self) -> int:
        return len(self.new)

    def proportions(self) -> dict[str, float]:
        """The share of each group in all accesses to shared variables (AI §3.3: IP), in percent; the largest first."""
        counts: Counter[str] = Counter()
        for one in self.sites.values():
            if one.shared:
                counts[one.group] += one.accesses
        total = max(counts.total(), 1)
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return {group: 100 * count / total for group, count in order}

    def left_alone(self) -> frozenset[str]:
        """The groups that are not guarded because they are hot."""
        if self.bias is None:
            return frozenset()
        return frozenset(group for group, percent in self.proportions().items() if percent > self.bias)

    def harmless_reads(self) -> dict[str, frozenset[str]]:
        """By the name of a read, the reads that it may follow although no run showed it.

        Where no write ever followed a write of another thread, a read after another thread's read changes nothing:
        what counts is the write before both, or nil. So it may follow another read of its variables if it may itself
        follow each write that the other one follows. Orders in which a write takes part stay as they were learned.
        """
        found = {}
        for members in self._of_one_variable():
            reads = {name for name in members if _is_read(name)}
            if not all(self.sites[name].before <= {None, *reads} for name in members - reads):
                continue
            writes = self._writes_before(reads)
            for name in reads:
                found[name] = frozenset(other for other in reads if writes[other] <= writes[name])
        return found

    def settled_reads(self) -> dict[str, int]:
        """By the name of a read that the guard need not record after others of its variables, their number from 1.

        No write of these variables ever followed another thread's access, and each read may follow each. So once two
        threads have read one, every read is right and every write a violation, whichever read came last.
        Beyond SETTLED_GROUPS, and where they are left alone, reads have no number; the hottest have one.
        """
        harmless, alone = self.harmless_reads(), self.left_alone()
        guarded = {name for name, one in self.sites.items() if one.shared and one.group not in alone}
        settled = []
        for members in self._of_one_variable():
            reads = {name for name in members & guarded if _is_read(name)}
            writes_first = all(self.sites[name].before <= {None} for name in members - reads)
            if reads and writes_first and all(reads <= self.sites[name].before | harmless[name] for name in reads):
                settled.append(reads)
        settled.sort(key=lambda reads: (-sum(self.sites[name].accesses for name in reads), min(reads)))
        return {name: number for number, reads in enumerate(settled[:SETTLED_GROUPS], 1) for name in reads}

    def _of_one_variable(self) -> list[set[str]]:
        """Sites together that may have accessed one variable, as far as it matters for the order of reads.

        Each access to a variable has the last one of the thread before it as its remote predecessor. So these connect
        all of them but those before any other thread's. A group has all, but it also joins all kinds of objects that
        one function clears, or one allocator gives out: it is taken apart if in it a write followed one of another
        thread.
        """
        apart = {
            one.group
            for name, one in self.sites.items()
            if not _is_read(name) and any(before is not None and not _is_read(before) for before in one.before)
        }
        first: dict[str, str] = {}
        known: DisjointSets[str] = DisjointSets()
        for name, one in self.sites.items():
            beside = set(filter(None, one.before))
            if one.group not in apart:
                beside.add(first.setdefault(one.group, name))
            if beside:
                known.join(name, *beside)
        return known.sets()

    def _writes_before(self, reads: Set[str]) -> dict[str, frozenset[str | None]]:
        """By the name of each read of some variables, the writes that may be the latest before it; None: none was."""
        writes = {name: frozenset(one for one in self.sites[name].before if not _is_read(one)) for name in reads}
        changed = True
        while changed:
            changed = False
            for name in reads:
                through = writes[name].union(*(writes[one] for one in self.sites[name].before if one in writes))
                changed |= through != writes[name]
                writes[name] = through
        return writes

    def digest(self) -> int:
        """A number of the contents, never 0: which sets a program was guarded with."""
        return int.from_bytes(hashlib.blake2b(self.encode().encode(), digest_size=8).digest(), "little") or 1

    def encode(self) -> str:
        """JSON, equal for equal contents, with one line per site."""
        head = {
            "format": FORMAT,
            "version": VERSION,
            "new": self.new,
            "bias": self.bias,
            "marked": self.marked,
            "atomics": self.atomics,
            "objects": self.objects,
        }
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        codes = [f"  {json.dumps(function)}: {json.dumps(code)}" for function, code in sorted(self.codes.items())]
        sites = []
        for name, learned in sorted(self.sites.items()):
            document = {
                "site": name,
                "code": learned.site.code,
                "where": learned.site.where,
                "function": learned.site.function,
                "variable": learned.site.variable,
                "group": learned.group,
                "shared": learned.shared,
                "accesses": learned.accesses,
                "addressed": learned.addressed,
                "before": sorted(learned.before, key=lambda other: (other is not None, other or "")),
            }
            sites.append(f"  {json.dumps(document)}")
        lines.append('"codes": {\n' + ",\n".join(codes) + "\n }")
        lines.append('"sites": [\n' + ",\n".join(sites) + "\n ]")
        return "{\n " + ",\n ".join(lines) + "\n}\n"

    @classmethod
    def decode(cls, text: str, origin: str) -> Self:
        """Raises CrashcheckError learned-corrupt and learned-version, naming `origin`."""
        if FORMAT not in text[:100]:
            raise CrashcheckError(
                "learned-corrupt", f"{origin} is no file of `crashcheck learn`.", "Name the file that it made."
            )
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(f"its format is {document['format']!r}")
            if document["version"] != VERSION:
                raise CrashcheckError(
                    "learned-version",
                    f"{origin} has version {document['version']}; this crashcheck reads version {VERSION}.",
                    _HINT,
                )
            sites = {
                str(one["site"]): LearnedSite(
                    NamedSite(one["site"], one["code"], one["where"], one["function"], one["variable"]),
                    frozenset(one["before"]),
                    str(one["group"]),
                    bool(one["shared"]),
                    int(one["accesses"]),
                    bool(one["addressed"]),
                )
                for one in document["sites"]
            }
            bias = document["bias"]
            learned = cls(
                tuple(map(int, document["new"])),
                sites,
                dict(document["codes"]),
                None if bias is None else float(bias),
                bool(document["marked"]),
                bool(document["atomics"]),
                bool(document["objects"]),
            )
            named = {name for one in sites.values() for name in one.before if name is not None}
            if not named <= sites.keys() or not {one.site.code for one in sites.values()} <= learned.codes.keys():
                raise ValueError("it names sites or functions that it does not define")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CrashcheckError("learned-corrupt", f"{origin} is damaged: {error!r}.", _HINT) from error
        return learned

    @classmethod
    def load(cls, path: Path) -> Self:
        """The sets in a file. Raises CrashcheckError learned-missing, learned-corrupt, learned-version."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CrashcheckError(
                "learned-missing", f"{path}: no such file.", "`crashcheck learn` makes it from passing runs."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CrashcheckError(
                "learned-corrupt", f"{path} cannot be read: {error}.", "Name the file that `crashcheck learn` made."
            ) from error
        return cls.decode(text, str(path))

    def save(self, path: Path) -> None:
        """Replace the file in one step: interrupted, it stays as it was. Raises CrashcheckError learned-unwritable."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            temporary.write_text(self.encode(), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise CrashcheckError("learned-unwritable", f"{path} cannot be written: {error.strerror}.") from error
