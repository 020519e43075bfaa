"""The driver's own output is the answer: after a crash, it must be that of a run in which nothing crashed.

Witcher (SOSP 2021), 4.5: the whole rest of the operations must print what it prints after the operation under way was
done, or what it prints after it was not done; one of them throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from itertools import islice

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import FINAL
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.oracles.histories import MOST_OPEN, History, Operations, Standing, Standings
from crashcheck.checker.oracles.references import Printed, Reference, References, how_it_ended
from crashcheck.checker.oracles.symptoms import differences, signs
from crashcheck.checker.results import Outcome, Verdict

_COLUMN = 30  # characters
_ROWS = 3
_LEGAL_SHOWN = 2
_ERRORS_SHOWN = 5  # lines
_NAMED = 5
_PASSED_CHARACTERS = 2000
_STAGES_KEPT = 16
_KEPT = 256  # moments whose legal histories are kept; runs that have ended and were not judged


class OutputEquivalence:
    """Compares with references, which it runs when they are first needed. `notes` lists what it could not judge."""

    name = "output-equivalence"

    def __init__(self, operations: Operations, standings: Standings, references: References) -> None:
        self.operations = operations
        self.standings = standings
        self.references = references
        self._plain = ExitStatus()
        self._stages: dict[int, tuple[bytes, ...]] = {}
        self._legal: dict[Standing, list[History]] = {}
        self._arrived: dict[int, tuple[Ended, Printed]] = {}  # by identity, until they are judged
        # Asks more of a boundary before a crash state that rests on it fails.
        self.vouch: Callable[[int], None] = lambda ordinal: None
        self._crash: int | None = None  # the crash point whose recovery is crashed
        self._crowded: dict[Standing, None] = {}
        self._reopening: dict[Standing, None] = {}  # where a clean reopen changes what is printed
        self._unusable: dict[Reference, None] = {}
        self.remarks: tuple[str, ...] = ()  # what is known before the search of what it cannot show

    def follow(self, other: OutputEquivalence) -> None:
        """Use the references of an oracle for the same operations."""
        self.references = other.references

    def recovering(self, point: int) -> OutputEquivalence:
        """The same for crashes in the recovery from a crash at `point`, which decides what operations had ended."""
        other = copy(self)  # with the same references, and the same list of what could not be judged
        other._crash = point
        return other

    def _standing(self, point: int) -> Standing:
        return self.standings.at(point if self._crash is None else self._crash)

    def stages(self, point: int) -> tuple[bytes, ...]:
        marks = self.standings.marks(point if self._crash is None else self._crash)
        if marks not in self._stages:
            if len(self._stages) >= _STAGES_KEPT:
                self._stages.clear()
            self._stages[marks] = (self.operations.text_of_rest(self._standing(point)),)
        return self._stages[marks]

    def context(self, point: int) -> bytes:
        standing = self._standing(point)
        begun = (standing.done, standing.open, standing.recent, sorted(standing.before))
        return repr((begun, self.operations.rest(standing))).encode()

    def arrived(self, ended: Ended, names: Mapping[str, str], point: int) -> None:
        standing = self._standing(point)
        if standing.unsettled == 1:
            printed = Printed.of(ended, names)
            self._arrived[id(ended)] = ended, printed
            if len(self._arrived) > _KEPT:  # runs that were begun, and never asked for
                del self._arrived[next(iter(self._arrived))]
            if ended.status != 0 or ended.timed_out:
                self._want_what_fails(standing)
            elif not self._as_if_nothing_crashed(standing, printed):
                self._want(standing)(self._most_likely_first(standing)[0])

    def assume_reopenable(self) -> None:
        self.references.assumes_reopenable = True

    def is_borne_out(self, point: int) -> bool:
        standing, references = self._standing(point), self.references
        if not self._assumes_reopenable(standing):
            return True
        if not standing.unsettled and len(standing.done) < len(self.operations):
            # An equal image may have been judged just after the next operation began: one verdict is for both.
            standing = replace(standing, open=(len(standing.done) + 1,))
        self._want_all(standing)
        legal = list(self.operations.legal(standing))
        same = [references.of(one).printed.key == references.soonest(one).printed.key for one in legal]
        tried = [references.try_boundary(ordinal) for ordinal in _boundaries(standing)]
        if not all((*same, *tried)):
            references.assumes_reopenable = False
            return False
        self._vouch(standing)
        return True

    def _assumes_reopenable(self, standing: Standing) -> bool:
        """Whether states of a moment are judged without a reopen at the operations' ends that they rest on."""
        return not self.references.divides and self._tail(standing) is not None

    def judge(self, ended: Ended, names: Mapping[str, str], point: int = FINAL) -> Verdict:
        standing = self._standing(point)
        known = self._arrived.pop(id(ended), None)
        printed = Printed.of(ended, names) if known is None else known[1]
        if ended.status == 0 and not ended.timed_out and self._as_if_nothing_crashed(standing, printed):
            return Verdict(Outcome.PASS, 0, None, "", False, ended.seconds)
        plain = self._plain.judge(ended, names)
        crowded = standing.unsettled > MOST_OPEN
        if crowded and plain.passed:
            self._crowded[standing] = None
            return _passed(plain)
        assumes = self._assumes_reopenable(standing)
        reference_of = self.references.soonest if assumes else self.references.of
        for history in () if crowded else self._most_likely_first(standing):
            reference = reference_of(history)
            whole = history.in_file_order and len(history.before) + len(history.rest) == len(self.operations)
            if whole and not assumes:
                self.references.try_boundary(len(history.before))  # it has been run already
            if plain.passed and self._differs_when_reopened(standing, self.references.differs_at):
                return _passed(plain)
            if plain.passed and not reference.unusable and reference.printed.key == printed.key:
                return _passed(plain)
            if self._tail(standing) is not None:  # the only other one was compared first, without a run
                self._want_what_fails(standing)
        legal = [] if crowded else [reference_of(history) for history in self.operations.legal(standing)]
        unusable = [reference for reference in legal if reference.unusable]
        if unusable:
            # What a run in which nothing crashed cannot show either is no finding.
            self._unusable.update(dict.fromkeys(unusable))
            return _passed(replace(plain, outcome=Outcome.PASS))
        if not assumes:
            differs = self._differs_when_reopened(standing, lambda ordinal: not self.references.try_boundary(ordinal))
            if differs and plain.passed:
                return _passed(plain)
            self._vouch(standing)
        return Verdict(
            outcome=Outcome.FAIL if plain.passed else plain.outcome,
            exit_code=plain.exit_code,
            signal=plain.signal,
            output=self._compared(plain, printed, standing, legal, ended),
            output_truncated=False,
            seconds=plain.seconds,
            signs=self._signs(plain, printed, legal, ended),
        )

    def _vouch(self, standing: Standing) -> None:
        for ordinal in _boundaries(standing):
            if ordinal:
                self.vouch(ordinal)

    def _want_what_fails(self, standing: Standing) -> None:
        """A state fails, as far as is known: begin all references that show whether it does, side by side."""
        if not self._assumes_reopenable(standing):
            self._want_all(standing)
        else:
            for history in self.operations.legal(standing):
                self.references.want_soonest(history)

    def _want(self, standing: Standing) -> Callable[[History], None]:
        return self.references.want_soonest if self._assumes_reopenable(standing) else self.references.want

    def _want_all(self, standing: Standing) -> None:
        """Begin all references of a moment, and the reopens that it rests on."""
        if standing.unsettled <= MOST_OPEN:
            for history in self.operations.legal(standing):
                self.references.want(history)
        for ordinal in _boundaries(standing):
            self.references.want_boundary(ordinal)

    def _differs_when_reopened(self, standing: Standing, differs_at: Callable[[int], bool]) -> bool:
        """Whether a clean reopen at one of the operations' ends that a state rests on changes what is printed.

        Then only how the driver ends can be judged: whatever it prints, a clean reopen may have done that.
        """
        if any(differs_at(ordinal) for ordinal in _boundaries(standing)):
            self._reopening[standing] = None
            return True
        return False

    def _most_likely_first(self, standing: Standing) -> list[History]:
        """The legal histories; where it is known what the first of them prints, and that it is not this, that last."""
        legal = self._legal.get(standing)
        if legal is None:
            if len(self._legal) >= _KEPT:
                self._legal.clear()
            legal = self._legal[standing] = list(self.operations.legal(standing))
        return legal if self._tail(standing) is None else [*legal[1:], legal[0]]

    def _tail(self, standing: Standing) -> bytes | None:
        """What the undisturbed run prints after all that had begun, if that is a legal history and known."""
        if standing.unsettled > 1 or not standing.in_file_order:
            return None
        return self.references.tail(len(standing.done) + standing.unsettled)

    def _as_if_nothing_crashed(self, standing: Standing, printed: Printed) -> bool:
        """Whether the rest's output is just how the undisturbed run's ends: then no reference is needed to pass."""
        return self._tail(standing) == printed.key

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not judged, for the report's warnings."""
        out = [*self.remarks]
        tried = self.references.boundaries
        if tried < len(self.operations):
            out.append(
                f"reopened with nothing crashed after {tried} of {len(self.operations)} operations: a sample, and each "
                "that a finding rests on"
            )
        for output, count in self.references.interleaved.items():
            out.append(
                f"the driver writes to {output} through {count} open files, each with its own buffer: a clean reopen "
                "changes the order of their bytes, which was not taken for a difference. Print through one of them"
            )
        if self._reopening:
            out.append(
                f"not judged: at {len(self._reopening)} moments what is printed depends on operations after which a "
                "clean reopen alone changes it, so only crashes and hangs were looked for there"
            )
        if self._crowded:
            most = max(standing.unsettled for standing in self._crowded)
            out.append(
                f"not judged: at {len(self._crowded)} moments up to {most} operations overlapped; outputs are compared "
                f"for at most {MOST_OPEN}, so only crashes and hangs were looked for there"
            )
        if self._unusable:
            named = [
                f"{_history(reference, self.operations)}: {reference.unusable}"
                for reference in list(self._unusable)[:_NAMED]
            ]
            more = len(self._unusable) - len(named)
            out.append(
                "unusable references (the driver fails with nothing crashed; crash states that match no other "
                "reference there were not judged): " + "; ".join(named) + (f"; and {more} more" if more else "")
            )
        return tuple(out)

    def _signs(self, plain: Verdict, printed: Printed, legal: list[Reference], ended: Ended) -> frozenset[str]:
        if plain.passed:
            found: frozenset[str] = frozenset()
            for at, part in enumerate(printed.by_output()):
                found |= differences(part.lines, [reference.printed.by_output()[at].lines for reference in legal])
            return found
        # What it had printed until it died depends on the operation.
        said = ended.errors.decode("utf-8", "replace").splitlines()
        return signs(said) if plain.outcome in (Outcome.FAIL, Outcome.SIGNAL) else frozenset()

    # -- texts for reports

    def _compared(
        self, plain: Verdict, printed: Printed, standing: Standing, legal: list[Reference], ended: Ended
    ) -> str:
        operations = self.operations
        rest = operations.rest(standing)
        where = "in " + _named(standing.open, operations) if standing.open else "between operations"
        if not standing.open and standing.done:
            where = f"after {_named(standing.done[-1:], operations)}"
        what = f"the rest (operations {rest[0]} to {rest[-1]})" if rest else "the empty rest"
        again = "" if self._crash is None else ", and another in the recovery from it"
        out = [f"crash {where}{again}; {what} was then run on the image"]
        if not plain.passed:
            out.append(f"and {how_it_ended(plain)}")
        elif legal:
            out.append("and printed what no legal history prints" if len(legal) > 1 else "and printed something else")
        if legal:
            at = _telling_output(printed, legal)
            if self.references.outputs != ("stdout",):
                out.append(f"{self.references.outputs[at]}:")
            out += [*_table(printed, self._nearest(printed, legal, at), standing, len(legal), at)]
        errors = [line for line in ended.errors.decode("utf-8", "replace").splitlines() if line.strip()]
        if errors:
            out += ["standard error:", *errors[-_ERRORS_SHOWN:]]
        return "\n".join(out) + "\n"

    def _nearest(self, printed: Printed, legal: list[Reference], at: int) -> list[Reference]:
        """Those to show: all if there are few, else those that agree longest, in one of the outputs."""
        if len(legal) <= _LEGAL_SHOWN:
            return legal
        mine = printed.by_output()[at].lines
        agreeing = [_agreement(mine, reference.printed.by_output()[at].lines) for reference in legal]
        best = sorted(range(len(legal)), key=lambda index: (-agreeing[index], index))[:_LEGAL_SHOWN]
        return [legal[index] for index in sorted(best)]


def _boundaries(standing: Standing) -> Iterator[int]:
    """The ends of operations that a crash's references are cut at, where one operation follows another."""
    if standing.in_file_order:
        done = len(standing.done)
        yield from {done, done + standing.unsettled} if standing.unsettled <= 1 else ()


def _passed(plain: Verdict) -> Verdict:
    return replace(plain, output=plain.output[:_PASSED_CHARACTERS], signs=frozenset())


def _agreement(one: list[str], other: list[str]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _telling_output(printed: Printed, legal: list[Reference]) -> int:
    """The first output that differs from all legal ones; else the first that differs from any."""
    parts = printed.by_output()

    def differing(at: int) -> int:
        return sum(parts[at].key != reference.printed.by_output()[at].key for reference in legal)

    alone = [at for at in range(len(parts)) if differing(at) == len(legal)]
    return next(iter([*alone, *(at for at in range(len(parts)) if differing(at))]), 0)


def _table(printed: Printed, shown: list[Reference], standing: Standing, legal: int, at: int) -> list[str]:
    """One actual output and the legal ones side by side, in the lines that tell them apart."""
    titles = ["after the crash", *(_title(reference, standing) for reference in shown)]
    outputs = [each.by_output()[at] for each in (printed, *(reference.printed for reference in shown))]
    columns = [output.lines for output in outputs]
    rows = _telling(columns[0], columns[1:])
    out = [_row("line", titles)]
    before = -1
    for row in rows:
        if row != before + 1:
            out.append("  ...")
        before = row
        cells = [column[row] if row < len(column) else "(nothing)" for column in columns]
        out.append(_row(str(row + 1), cells))
    if not all(output.whole for output in outputs):
        out.append("(outputs are compared whole; their middles were not kept to be shown)")
    if legal > len(shown):
        out.append(f"({legal} histories are legal; the {len(shown)} that agree longest are shown)")
    return out


def _telling(actual: list[str], legal: list[list[str]]) -> list[int]:
    """The first line that differs from each legal output, and the first few that differ from all of them."""

    def differs(row: int, column: list[str]) -> bool:
        return actual[row : row + 1] != column[row : row + 1]

    longest = max(len(actual), *map(len, legal))
    firsts = {_agreement(actual, column) for column in legal}
    alone = (row for row in range(longest) if all(differs(row, column) for column in legal))
    return sorted({row for row in firsts if row < longest} | set(islice(alone, _ROWS)))


def _row(number: str, cells: list[str]) -> str:
    cut = [cell if len(cell) <= _COLUMN else cell[: _COLUMN - 3] + "..." for cell in cells]
    return (f"{number:>5} | " + " | ".join(f"{cell:<{_COLUMN}}" for cell in cut)).rstrip()


def _title(reference: Reference, standing: Standing) -> str:
    if not standing.unsettled:
        return "without a crash"
    applied = reference.history.before[len(standing.done) :]
    if standing.unsettled == 1:
        return f"operation {standing.open[0]} " + ("done" if applied else "not done")
    return f"done: {', '.join(map(str, applied)) or 'none'}"


def _named(ordinals: tuple[int, ...], operations: Operations) -> str:
    return ", ".join(f"operation {ordinal} ({operations.shown(ordinal)[:60]})" for ordinal in ordinals)


def _history(reference: Reference, operations: Operations) -> str:
    """Which operations a reference is made of, named by what it leaves out."""
    history = reference.history
    present = {*history.before, *history.rest}
    missing = tuple(ordinal for ordinal in range(1, len(operations) + 1) if ordinal not in present)
    return f"all but {_named(missing, operations)}" if missing else f"closed after operation {len(history.before)}"
