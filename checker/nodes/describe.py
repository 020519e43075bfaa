"""A run that fails, in words: names of nodes and messages, the pair of actions that matters, and the evidence."""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from crashcheck.checker.evidence import PENDING, ActionOrder, ActionRow
from crashcheck.checker.nodes.dependence import BOUND_OF, OF_MESSAGES
from crashcheck.checker.nodes.message_names import TEXT_BYTES, MessageName, is_text, message_names, shown
from crashcheck.checker.nodes.minimise import Minimal, Pair, cost, until_failure
from crashcheck.checker.nodes.runs import NodeRole, NodeRun, RunFailure, Wrong, delivery_of
from crashcheck.checker.oracles.symptoms import masked, signs
from crashcheck.checker.results import Finding, FindingKind, Location, Outcome, Verdict
from crashcheck.runtime.nodes.actions import (
    ACCEPTED,
    END,
    REFUSED,
    RESET,
    Action,
    ActionKind,
    ActionResult,
    DiskState,
    Message,
    ThreadWait,
)
from crashcheck.source import spoken_line

_SHOWN_CHARS = 200  # of a message, in the evidence
_PRINTED = 4096  # bytes of what a node printed
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*):(?P<line>\d+)\)")
_VERBS = {
    ActionKind.START: "starts",
    ActionKind.RESTART: "starts again",
    ActionKind.CONNECT: "arrives",
    ActionKind.TIMER: "fires",
    ActionKind.CRASH_PROCESS: "is killed",
    ActionKind.CRASH_MACHINE: "loses power",
    ActionKind.DELIVER: "is delivered",
    ActionKind.LOSE: "is lost",
    ActionKind.DUPLICATE: "is delivered twice",
    ActionKind.CUT: "is cut",
    ActionKind.HEAL: "is healed",
    ActionKind.RESET: "is reset",
    ActionKind.COMPLETE: "ends",
    ActionKind.THREAD: "continues",
    ActionKind.LAPSE: "passes",
}
_OF_CONNECTIONS = {  # messages that are no data
    ACCEPTED: "the answer to the connection request",
    REFUSED: "the refusal of the connection request",
    END: "the end of the connection",
    RESET: "the reset of the connection",
}


class Sent(NamedTuple):
    """A message of a run. `place`: of the action that sent it, set-up included."""

    message: Message
    place: int


class RunFacts(NamedTuple):
    """What is known of a run's actions beside their names."""

    sent: Mapping[Action, Sent] = MappingProxyType({})  # messages, by the names of their deliveries
    lost: Mapping[Action, str] = MappingProxyType({})  # what machines start again without
    places: bool = False  # whether messages are named by the calls that sent them as well
    compared: Mapping[int, str] = MappingProxyType({})  # places where times are compared, by name
    threads: Mapping[Action, ThreadWait] = MappingProxyType({})  # those that continue
    fired: Mapping[Action, int] = MappingProxyType({})  # timers that fired in one action, where these are more than one
    names: Mapping[bytes, MessageName] = MappingProxyType({})  # of messages, by their data


@dataclass(frozen=True, slots=True)
class Describer:
    """Names what a search of some nodes finds. `place`: of the node in the configuration; `faults`: what fails how.

    `numbered`: of the faults with a number, by their place in the configuration, which call of which node it is.
    """

    roles: Sequence[NodeRole]
    model: str
    place: Location
    faults: Sequence[str] = ()
    numbered: Sequence[str] = ()

    def node(self, number: int) -> str:
        return self.roles[number].name if 0 <= number < len(self.roles) else f"n{number}"

    def finding(self, minimal: Minimal, token: str, note: str = "", uncertain: str = "") -> Finding:
        """The finding of a minimised run; one failing run has it so far."""
        run, failure = minimal.run, minimal.run.failure
        assert failure is not None
        facts = facts_of(run)
        # without names that depend on what else is sent
        message = self._sentence(minimal, facts._replace(names={}))
        return Finding(
            id=_id(failure, message),
            kind=FindingKind.ACTIONS,
            model=self.model,
            message=self._sentence(minimal, facts._replace(places=True)),
            location=self._location(run, minimal.pair, facts),
            evidence=self._evidence(run, failure, minimal.pair, facts),
            replay=token,
            states=1,
            uncertain=uncertain,
            note=note,
        )

    def _sentence(self, minimal: Minimal, facts: RunFacts) -> str:
        """What is wrong, and which actions lead to it."""
        run, failure = minimal.run, minimal.run.failure
        assert failure is not None
        what, telling = self.failure(failure), _telling(run, minimal.pair, facts)
        if minimal.pair is not None:
            first, second = minimal.pair
            words = self.subject if first.kind is second.kind else self.clause
            before = f"{self.clause(first, facts)} before {words(second, facts)}"
            return f"{what} if {' and '.join([before, *(self.clause(each, facts) for each in telling[2:])])}"
        clauses = [self.clause(each, facts) for each in telling]
        return f"{what} if {' and '.join(clauses)}" if clauses else f"{what} in the default order of actions"

    def failure(self, failure: RunFailure) -> str:
        """What is wrong, as a clause."""
        node = self.node(failure.node)
        if failure.wrong is Wrong.SIGNAL:
            return f"{node} is ended by {_signal(failure.value)}"
        if failure.wrong is Wrong.STATUS:
            return f"{node} ends with status {failure.value}"
        if failure.wrong is Wrong.DEADLOCK:
            return f"{node} waits for ever"
        if failure.wrong is Wrong.DIVERGENCE:
            return f"{node} does not come to rest"
        if failure.wrong is Wrong.PROGRESS:
            return "the check of progress fails, although failures stop,"
        return "the check fails" if failure.wrong is Wrong.AFTER else "the check of the end fails"

    def subject(self, action: Action, facts: RunFacts) -> str:
        """What an action is of: a message, a timer, a node, a link."""
        node, peer = self.node(action.node), self.node(action.peer)
        if action.kind in OF_MESSAGES:
            known = _message_of(action, facts)
            place = _in_brackets(known.message.stack) if known is not None and facts.places else ""
            return f"{self._message(known, facts)} from {peer} to {node}{place}"
        if action.kind is ActionKind.TIMER:
            return f"timer {action.number + 1} of {node}"
        if action.kind is ActionKind.THREAD:
            return _thread(action, node, facts)
        if action.kind is ActionKind.COMPLETE:
            return f"request {action.number + 1} of {node} to a file"
        if action.kind is ActionKind.LAPSE:
            return f"the time-out of {node} {_compared(facts.compared.get(action.channel, ''), facts.places)}"
        if action.kind in (ActionKind.CUT, ActionKind.HEAL):
            return f"the link between {node} and {peer}"
        if action.kind is ActionKind.RESET:
            return f"connection {action.channel + 1} between {node} and {peer}"
        if action.kind is ActionKind.CONNECT:
            return f"the connection request of {peer} to {node}"
        return node

    def _message(self, known: Sent | None, facts: RunFacts) -> str:
        if known is None:
            return "a message"
        if known.message.data:
            name = facts.names.get(known.message.data)
            return f"`{name.sentence if name else shown(known.message.data, TEXT_BYTES)}`"
        return _OF_CONNECTIONS.get(known.message.what, "an empty message")

    def clause(self, action: Action, facts: RunFacts) -> str:
        """An action as a clause: "n1 is killed"."""
        if action.kind is ActionKind.FAULT:
            verb = f"has a failing {self.faults[action.number] if self.faults else 'call'}"
        elif action in facts.lost:
            verb = f"starts again without {facts.lost[action]}"
        elif more := facts.fired.get(action, 1) - 1:
            verb = f"and the next {more} fire" if more > 1 else "and the next fire"
        else:
            verb = _VERBS[action.kind]
        return f"{self.subject(action, facts)} {verb}"

    def _location(self, run: NodeRun, pair: Pair | None, facts: RunFacts) -> Location:
        """Where an update that was lost was made, or a message that the sentence names is sent, if that is known; else
        the nodes' place in the configuration."""
        frames = [result.disk.place for result in run.results if result.disk is not None]
        for action in _telling(run, pair, facts):
            frames += _stack_of(action, facts)
        for frame in frames:
            if found := _FRAME.fullmatch(frame):
                return Location(found["file"], int(found["line"]), 0, found["function"], "", ())
        return self.place

    def _evidence(self, run: NodeRun, failure: RunFailure, pair: Pair | None, facts: RunFacts) -> ActionOrder:
        results = [*run.set_up, *run.results[: failure.at]]
        rows = [self._row(result, pair, facts) for result in results]
        if pair is not None and pair[1] not in run.chosen[: failure.at]:
            pending = self._row(ActionResult(pair[1]), pair, facts)
            rows.append(replace(pending, kind=PENDING, what=f"not yet: {self.subject(pair[1], facts)}"))
        size = cost(run)
        actions = "1 action" if size.actions == 1 else f"{size.actions} actions"
        failures = f", {size.failures} of them failures" if size.failures > 1 else ", 1 of them a failure"
        failures = failures if size.failures else ""
        return ActionOrder(
            verdict=failure.verdict or self._verdict(results, failure),
            nodes=tuple(role.name for role in self.roles),
            rows=tuple(rows),
            ending=self.failure(failure),
            when=f"{actions}{failures}",
            checked=failure.verdict is not None,
        )

    def _row(self, result: ActionResult, pair: Pair | None, facts: RunFacts) -> ActionRow:
        action = result.action
        known = _message_of(action, facts)
        message, sent = (known.message, known.place) if known is not None else (None, -1)
        return ActionRow(
            kind=action.kind.value,
            node=action.node,
            peer=action.peer,
            what=self.clause(action, facts._replace(places=facts.places or action.kind is ActionKind.THREAD)),
            data=_data(message.data, facts) if message is not None else "",
            label=facts.names[message.data].label if message is not None else "",
            sent=sent,
            sender=message.stack[0] if message is not None and message.stack else "",
            printed=shown(result.wrote, _SHOWN_CHARS),
            ended=_ended(result),
            role="first" if pair and action == pair[0] else "second" if pair and action == pair[1] else "",
            disk=disk_text(result.disk),
        )

    def _verdict(self, results: Sequence[ActionResult], failure: RunFailure) -> Verdict:
        """Of a node that ended, or waits for ever: its own output, and then what it wrote to its standard error."""
        own = [result for result in results if result.action.node == failure.node]
        streams = b"".join(result.wrote for result in own), b"".join(result.errors for result in own)
        text = "\n".join(stream[-_PRINTED:].decode("utf-8", "replace").rstrip("\n") for stream in streams if stream)
        if failure.wrong is Wrong.SIGNAL:
            return Verdict(Outcome.SIGNAL, None, failure.value, text, False, 0.0)
        code = failure.value if failure.wrong is Wrong.STATUS else None
        outcome = Outcome.TIMEOUT if failure.wrong in (Wrong.DEADLOCK, Wrong.DIVERGENCE) else Outcome.FAIL
        return Verdict(outcome, code, None, text, False, 0.0, signs(text.splitlines()))


def _telling(run: NodeRun, pair: Pair | None, facts: RunFacts) -> Sequence[Action]:
    """The actions that lead to a failure, as its sentence names them: those of the pair first; none if all came in the
    default order."""
    actions = until_failure(run)
    lost = [one for one in actions if (one in facts.lost or one.kind is ActionKind.LAPSE) and one not in (pair or ())]
    if pair is not None:
        return [*pair, *lost]
    unusual = [action for at, action in enumerate(actions) if run.enabled[at][0] != action]
    if not unusual:
        return ()
    if failures := [one for one in actions if one.kind in BOUND_OF or one in lost]:
        return failures
    # That a time-out fires early is no failure, and it takes that: a client asks again, for example.
    early = [one for one in unusual if one.kind is ActionKind.TIMER][-1:]
    return [*dict.fromkeys((*early, *actions[-1:]))]


def _id(failure: RunFailure, message: str) -> str:
    """Nodes that differ in their number only have the same bugs."""
    shown = f"{failure.wrong} {failure.value} {masked(message)}"
    return hashlib.blake2b(shown.encode(), digest_size=6).hexdigest()


def disk_text(disk: DiskState | None) -> str:
    """What a disk kept when its machine crashed: "kept 1 of 2 updates"; empty if nothing could be lost."""
    return f"kept {disk.pending - disk.losses} of {disk.pending} updates" if disk is not None and disk.pending else ""


def facts_of(run: NodeRun) -> RunFacts:
    """All that was sent in a run, and what machines lost."""
    results = (*run.set_up, *run.results)
    sent = {delivery_of(message): Sent(message, at) for at, result in enumerate(results) for message in result.sent}
    lost = {one.action: _lost(one.disk) for one in results if one.disk is not None and one.disk.losses}
    compared = {one.name: one.place for result in results for one in result.compared}
    threads = {result.action: result.thread for result in results if result.thread is not None}
    fired = {one.action: one.fired for one in results if one.fired > 1}
    names = message_names(each.message.data for each in sent.values())
    return RunFacts(sent, lost, compared=compared, threads=threads, fired=fired, names=names)


def _lost(disk: DiskState) -> str:
    more = disk.losses - len(disk.lost)
    return " and ".join([*disk.lost, *([f"{more} other updates"] if more else [])])


def _compared(text: str, places: bool) -> str:
    """Where times are compared: "at grant (lease.c:47)", or "in grant" without places."""
    place = _FRAME.fullmatch(text)
    if place is None or not places:
        return f"in {place['function'] if place else text or 'a comparison'}"
    return f"at {place['function']} ({_line(place)})"


def _thread(action: Action, node: str, facts: RunFacts) -> str:
    """A thread that continues: "thread 2 of server"; with places its name, and where it waited."""
    known = facts.threads.get(action) if facts.places else None
    name = f" '{known.name}'" if known is not None and known.name else ""
    waits = _in_brackets(known.stack) if known is not None else ""
    return f"thread {action.number + 1}{name} of {node}{waits}"


def _in_brackets(stack: Sequence[str]) -> str:
    """The calls of a stack, the innermost two: " (send_word at net.c:22, from vote at vote.c:70)"."""
    calls = [f"{each['function']} at {_line(each)}" for each in _placed(stack)]
    return f" ({', from '.join(calls[:2])})" if calls else ""


def _line(place: re.Match[str]) -> str:
    return spoken_line(place["file"], int(place["line"]))


def _placed(stack: Sequence[str]) -> Iterator[re.Match[str]]:
    """The calls of a stack of which the line is known."""
    return filter(None, map(_FRAME.fullmatch, stack))


def _stack_of(action: Action, facts: RunFacts) -> Sequence[str]:
    """The calls that sent an action's message, or in which its thread waited, the innermost first, as far as known."""
    known, thread = _message_of(action, facts), facts.threads.get(action)
    return known.message.stack if known is not None else thread.stack if thread is not None else ()


def _message_of(action: Action, facts: RunFacts) -> Sent | None:
    """The message that an action delivers or loses; None if it is of none, or of one that is not known."""
    return facts.sent.get(action._replace(kind=ActionKind.DELIVER)) if action.kind in OF_MESSAGES else None


def _data(data: bytes, facts: RunFacts) -> str:
    first = shown(data, _SHOWN_CHARS)
    return first if is_text(data) else f"{facts.names[data].sentence}: {first}"


def _ended(result: ActionResult) -> str:
    if result.ended is None:
        return ""
    low, high = result.ended & 127, result.ended >> 8
    return f"ended by {_signal(low)}" if low else f"ended with status {high}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
