"""The states that fail, in a file that the next run reads: it tests them first, and reports which of them pass now.

A state is written as what it loses and keeps, by site signature, so that the next version's recording has a counterpart
(checker/findings/counterpart.py). The file is data of whoever ran before: it can change the order of
a search, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from crashcheck.checker.baseline import Known, matched
from crashcheck.checker.findings.counterpart import Counterpart, Described, Signed, counterpart_of, described, renamed
from crashcheck.checker.results import Count, Earlier, Finding, FindingKind
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Token, digest
from crashcheck.errors import CrashcheckError

VERSION = 1
MOST_STATES = 100  # findings of which the states are kept
MOST_UPDATES = 1_000  # of a state that are kept
MOST_BYTES = 4 << 20  # of a file that is read
_Text = Annotated[str, Meta(max_length=2_000)]


class Failing(msgspec.Struct, frozen=True):
    """A finding, and its crash state as signatures."""

    id: Annotated[str, Meta(max_length=40)]
    kind: FindingKind
    message: _Text
    likenesses: tuple[_Text, ...]
    state: Described
    commit: Annotated[str, Meta(pattern="^[0-9a-f]{0,64}$")] = ""


class FailingOrder(msgspec.Struct, frozen=True):
    """A finding of nodes, and the token of its order of actions."""

    id: Annotated[str, Meta(max_length=40)]
    message: _Text
    token: Annotated[str, Meta(max_length=MOST_BYTES)]
    commit: Annotated[str, Meta(pattern="^[0-9a-f]{0,64}$")] = ""


class FailingFile(msgspec.Struct, frozen=True):
    """What the file holds: of one program states, of nodes orders."""

    version: Count = VERSION
    states: tuple[Failing, ...] = ()
    orders: tuple[FailingOrder, ...] = ()


def read_failing(path: Path) -> FailingFile:
    """What an earlier run wrote; nothing where there is no file, or none that can be read."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            return FailingFile()
        document = msgspec.json.decode(text, type=FailingFile)
    except (OSError, ValueError, RecursionError):  # of which msgspec's errors are some
        return FailingFile()
    if document.version != VERSION:
        return FailingFile()
    return FailingFile(VERSION, document.states[:MOST_STATES], document.orders[:MOST_STATES])


def write_failing(path: Path, states: Iterable[Failing] = (), orders: Iterable[FailingOrder] = ()) -> None:
    """Write the file, as a whole. Raises CrashcheckError(report-unwritable)."""
    document = FailingFile(VERSION, tuple(states)[:MOST_STATES], tuple(orders)[:MOST_STATES])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_bytes(msgspec.json.encode(document))
        temporary.replace(path)
    except OSError as error:
        raise CrashcheckError("report-unwritable", f"{path} cannot be written: {error.strerror}.") from error


def failing_states(findings: Iterable[Finding], signed: Signed, commit: str) -> list[Failing]:
    """The states of findings of the recording; none of a second crash, during recovery."""
    trace = signed.subject.trace
    own, out = digest(trace), []
    for one in findings:
        try:
            token = Token.parse(one.replay)
        except CrashcheckError:  # of a clean reopen, which needs no crash
            continue
        if len(token.levels) == 1 and token.levels[0].digest == own:
            what = described(one, token.levels[0].state, signed)
            if what is not None:
                what = replace(what, losing=what.losing[:MOST_UPDATES], rest=what.rest[:MOST_UPDATES], pending=())
                out.append(Failing(one.id, one.kind, one.message[:2_000], one.likenesses, what, commit))
    return out


class LastFailures:
    """What failed in an earlier run, in this run's recording: which states to test first, and what came of it."""

    def __init__(self, failing: Sequence[Failing]) -> None:
        self._failing = failing
        self._found: list[Counterpart] = []
        self.again: tuple[Earlier, ...] = ()  # those that the search did not meet, once it has ended
        self.untested: tuple[Failing, ...] = ()  # those of them that are not fixed

    def states(self, subject: Subject) -> list[CrashState]:
        """The counterparts of what failed, each once."""
        self._found.clear()
        if not self._failing:
            return []
        signed, canonical = Signed(subject), CanonicalStates(subject.space)
        for one in self._failing:
            places = {place for place, *_ in (*one.state.losing, *one.state.rest)}
            found = counterpart_of(one.state, renamed(places, signed.places), signed)
            self._found.append(Counterpart(tuple(map(canonical.first, found.states)), found.impossible))
        return list(dict.fromkeys(state for one in self._found for state in one.states))

    def searched(self, findings: Sequence[Finding], passed: Callable[[CrashState], bool]) -> None:
        """Take note of the state of each. `passed`: whether the search has seen a state pass."""
        known = [Known(one.id, one.likenesses, one.kind.value, one.message) for one in self._failing]
        met = set(matched(findings, known).values())
        again, untested = [], []
        for number, (one, found) in enumerate(zip(self._failing, self._found, strict=True)):
            if number in met:
                continue
            executed = sum(map(passed, found.states))
            fixed = found.impossible or (found.states and executed == len(found.states))
            again.append(Earlier(one.id, one.kind, one.message, "fixed" if fixed else "not-seen", executed, one.commit))
            if not fixed:
                untested.append(one)
        self.again, self.untested = tuple(again), tuple(untested)
