"""What random runs have reached, and from where the next one begins: where few have been.

As Go-Explore does (Ecoffet et al., Nature 2021): remember how to come to each situation, return to one that few runs
have seen, and continue at random from there. So a bug that needs several rare things in a row is found one after the
other: the runs that saw the first are continued, and need not be lucky once more.

A *situation* is what each node sent and printed last, and whether it is up. Messages are compared by what kind they
are, not byte by byte: counters and checksums would make each situation a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import NamedTuple

from crashcheck.checker.nodes.dependence import CRASHES
from crashcheck.checker.nodes.runs import NodeRun, promised
from crashcheck.runtime.nodes.actions import Action, ActionKind

_BYTES = 64  # of a message that may show its kind, as its header does
_VALUES = 8  # a place in messages of one shape with more values than this is a counter, a time or a checksum
_OF_LONGEST = 0.5  # of the longest run: a run that begins later has too few actions left
_MOST = 10_000  # situations that are remembered; those that most runs have seen are forgotten first


class _Said(NamedTuple):
    """What a node sent or printed. `receiver`: -1: it printed it."""

    receiver: int
    data: bytes


_Last = tuple[tuple[_Said | None, _Said | None, bool], ...]  # by node: sent, printed, and whether it is up
_Situation = tuple[object, ...]


@dataclass(slots=True)
class _Way:
    """The shortest way to a situation: the first `length` choices of a run."""

    last: _Last
    chosen: tuple[Action, ...]
    length: int
    crash: Action | None  # of the machine that has just promised something (runs.promised), if it may crash
    seen: int = 0  # by runs that did not begin with it, or that began from here
    crashed: int = 0  # runs that began with the crash


class _Kinds:
    """Learns the kinds of messages: by the bytes that have few values in all messages of one shape."""

    def __init__(self) -> None:
        self._values: dict[tuple[bool, int], list[set[int]]] = {}
        self.learned = 0  # changes when what was one kind before may be another now

    @staticmethod
    def _shape(said: _Said) -> tuple[bool, int]:
        return said.receiver < 0, len(said.data).bit_length()

    def learn(self, said: _Said) -> None:
        places = self._values.setdefault(self._shape(said), [])
        for at, value in enumerate(said.data):
            if at == len(places):
                places.append(set())
            values = places[at]
            if len(values) <= _VALUES and value not in values:
                values.add(value)
                self.learned += len(values) > _VALUES

    def of(self, said: _Said | None) -> tuple[object, ...]:
        if said is None:
            return ()
        places = self._values[self._shape(said)]
        kept = bytes(value for value, values in zip(said.data, places, strict=False) if len(values) <= _VALUES)
        return (said.receiver, *self._shape(said), kept)


class Situations:
    """The situations that runs have reached."""

    def __init__(self) -> None:
        self._kinds = _Kinds()
        self._ways: dict[_Situation, _Way] = {}
        self._longest = 0

    def beginning(self, random: Random) -> tuple[Action, ...]:
        """The choices that lead to a situation, the more probable the fewer runs have seen it; () if there is none."""
        ways = [way for way in self._ways.values() if 0 < way.length <= self._longest * _OF_LONGEST]
        if not ways:
            return ()
        total = list(accumulate(1 / (1 + way.seen) for way in ways))
        way = random.choices(ways, cum_weights=total)[0]
        way.seen += 1
        return way.chosen[: way.length]

    def broken_promise(self, random: Random) -> tuple[Action, ...]:
        """The choices that lead to a promise, and the crash of the machine that made it, the more probable the fewer
        runs have begun so; () if there is none."""
        ways = [(way, way.crash) for way in self._ways.values() if way.crash is not None]
        if not ways:
            return ()
        total = list(accumulate(1 / (1 + way.crashed) for way, _ in ways))
        way, crash = random.choices(ways, cum_weights=total)[0]
        way.crashed += 1
        return (*way.chosen[: way.length], crash)

    def learn(self, run: NodeRun, since: int) -> None:
        """Take note of a run. `since`: so many of its choices were another run's."""
        known = self._kinds.learned
        passed = list(_situations(run, self._kinds))
        if self._kinds.learned != known:
            self._name_again()
        self._longest = max(self._longest, len(run.chosen))
        chosen, promises = tuple(run.chosen), promised(run)
        counted: set[_Situation] = set()
        for length, last in passed:
            if length == len(chosen):
                break  # nothing follows: the run would be the same one
            situation = self._situation(last)
            way = self._ways.get(situation)
            if way is None:
                way = self._ways[situation] = _Way(last, chosen, length, promises.get(length))
            elif length < way.length:
                way.chosen, way.length, way.crash = chosen, length, promises.get(length)
            if length >= since and situation not in counted:
                counted.add(situation)
                way.seen += 1
        if len(self._ways) > _MOST:
            rarest = sorted(self._ways.items(), key=lambda item: item[1].seen)
            self._ways = dict(rarest[: _MOST // 2])

    def _situation(self, last: _Last) -> _Situation:
        return tuple((self._kinds.of(sent), self._kinds.of(printed), up) for sent, printed, up in last)

    def _name_again(self) -> None:
        """Kinds have changed: what were two situations may be one."""
        ways, self._ways = self._ways, {}
        for way in ways.values():
            same = self._ways.setdefault(self._situation(way.last), way)
            if same is not way:
                same.seen += way.seen
                same.crashed += way.crashed
                if way.length < same.length:
                    same.chosen, same.length, same.crash = way.chosen, way.length, way.crash


def _situations(run: NodeRun, kinds: _Kinds) -> Iterator[tuple[int, _Last]]:
    """After how many choices a run came to which situation; where nothing is sent, printed, ended or begun it stays."""
    sent: dict[int, _Said] = {}
    printed: dict[int, _Said] = {}
    up: dict[int, bool] = {}
    nodes = {result.action.node for result in (*run.set_up, *run.results)}
    set_up = len(run.set_up)
    for at, result in enumerate((*run.set_up, *run.results)):
        action = result.action
        changed = result.ended is not None or action.kind in (*CRASHES, ActionKind.RESTART)
        if changed:
            up[action.node] = action.kind is ActionKind.RESTART
        for message in result.sent:
            if message.data:
                sent[message.sender] = _Said(message.receiver, message.data[:_BYTES])
                kinds.learn(sent[message.sender])
                changed = True
        if lines := result.wrote.splitlines():
            printed[action.node] = _Said(-1, lines[-1][:_BYTES])
            kinds.learn(printed[action.node])
            changed = True
        if changed and at >= set_up:
            last = tuple((sent.get(node), printed.get(node), up.get(node, True)) for node in sorted(nodes))
            yield at + 1 - set_up, last
