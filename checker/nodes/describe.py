"""A run that fails, in words: names of nodes and messages, the pair of actions that matters, and the evidence."""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from crashcheck.checker.evidence import PENDING, ActionOrder, ActionRow
from crashcheck.checker.nodes.dependence import BOUND_OF, OF_MESSAGES
from crashcheck.checker.nodes.minimise import Minimal, Pair, cost, until_failure
from crashcheck.checker.nodes.runs import NodeRole, NodeRun, RunFailure, Wrong, delivery_of
from crashcheck.checker.oracles.symptoms import masked, signs
from crashcheck.checker.results import Finding, FindingKind, Location, Outcome, Verdict
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult, Message

_DATA_CHARS = 24  # of a message, in a sentence
_SHOWN_CHARS = 200  # of a message, in the evidence
_PRINTED = 4096  # bytes of what a node printed
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*):(?P<line>\d+)\)")
_VERBS = {
    ActionKind.START: "starts",
    ActionKind.RESTART: "starts again",
    ActionKind.CRASH_PROCESS: "is killed",
    ActionKind.CRASH_MACHINE: "loses power",
    ActionKind.DELIVER: "is delivered",
    ActionKind.LOSE: "is lost",
    ActionKind.DUPLICATE: "is delivered twice",
    ActionKind.CUT: "is cut",
    ActionKind.HEAL: "is healed",
    ActionKind.RESET: "is reset",
}


class Sent(NamedTuple):
    """A message of a run. `place`: of the action that sent it, set-up included; `answer`: to a connection request."""

    message: Message
    place: int
    answer: bool


Messages = Mapping[Action, Sent]  # by the names of their deliveries


@dataclass(frozen=True, slots=True)
class Describer:
    """Names what a search of some nodes finds. `place`: of the node in the configuration."""

    roles: Sequence[NodeRole]
    model: str
    place: Location

    def node(self, number: int) -> str:
        return self.roles[number].name if 0 <= number < len(self.roles) else f"n{number}"

    def finding(self, minimal: Minimal, token: str, note: str = "", uncertain: str = "") -> Finding:
        """The finding of a minimised run; one failing run has it so far."""
        run, failure = minimal.run, minimal.run.failure
        assert failure is not None
        messages = messages_of(run)
        what = self.failure(failure)
        if minimal.pair is not None:
            first, second = minimal.pair
            words = self.subject if first.kind is second.kind else self.clause
            message = f"{what} if {self.clause(first, messages)} before {words(second, messages)}"
        else:
            actions = until_failure(run)
            telling = [each for each in actions if each.kind in BOUND_OF] or actions[-1:]
            by_default = all(run.enabled[at][0] == action for at, action in enumerate(actions))
            clauses = " and ".join(self.clause(each, messages) for each in telling)
            message = f"{what} in the default order of actions" if by_default else f"{what} if {clauses}"
        return Finding(
            # Nodes that differ in their number only have the same bugs.
            id=hashlib.blake2b(
                f"{failure.wrong} {failure.value} {masked(message)}".encode(), digest_size=6
            ).hexdigest(),
            kind=FindingKind.ACTIONS,
            model=self.model,
            message=message,
            location=self._location(minimal.pair, messages),
            evidence=self._evidence(run, failure, minimal.pair, messages),
            replay=token,
            states=1,
            uncertain=uncertain,
            note=note,
        )

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
        return "the check fails" if failure.wrong is Wrong.AFTER else "the check of the end fails"

    def subject(self, action: Action, messages: Messages) -> str:
        """What an action is of: a message, a timer, a node, a link."""
        node, peer = self.node(action.node), self.node(action.peer)
        if action.kind in OF_MESSAGES:
            return f"{self._message(_message_of(action, messages))} from {peer} to {node}"
        if action.kind is ActionKind.TIMER:
            return f"timer {action.number + 1} of {node}"
        if action.kind in (ActionKind.CUT, ActionKind.HEAL):
            return f"the link between {node} and {peer}"
        if action.kind is ActionKind.RESET:
            return f"connection {action.channel + 1} between {node} and {peer}"
        if action.kind is ActionKind.CONNECT:
            return f"the connection request of {peer} to {node}"
        return node

    def _message(self, known: Sent | None) -> str:
        if known is None:
            return "a message"
        if known.message.data:
            return f"`{_shown(known.message.data, _DATA_CHARS)}`"
        if known.message.protocol != "tcp":
            return "an empty message"
        return "the answer to the connection request" if known.answer else "the end of the connection"

    def clause(self, action: Action, messages: Messages) -> str:
        verb = {
            ActionKind.TIMER: "fires",
            ActionKind.CONNECT: "arrives",
            ActionKind.FAULT: f"has a failing call ([[faults]] {action.number + 1})",
        }.get(action.kind) or _VERBS[action.kind]
        return f"{self.subject(action, messages)} {verb}"

    def _location(self, pair: Pair | None, messages: Messages) -> Location:
        """Where the message of the pair is sent, if that is known; else the nodes' place in the configuration."""
        for action in pair or ():
            known = _message_of(action, messages)
            for frame in known.message.stack if known else ():
                if found := _FRAME.fullmatch(frame):
                    return Location(found["file"], int(found["line"]), 0, found["function"], "", ())
        return self.place

    def _evidence(self, run: NodeRun, failure: RunFailure, pair: Pair | None, messages: Messages) -> ActionOrder:
        results = [*run.set_up, *run.results[: failure.at]]
        rows = [self._row(result, pair, messages) for result in results]
        if pair is not None and pair[1] not in run.chosen[: failure.at]:
            pending = self._row(ActionResult(pair[1]), pair, messages)
            rows.append(replace(pending, kind=PENDING, what=f"not yet: {self.subject(pair[1], messages)}"))
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

    def _row(self, result: ActionResult, pair: Pair | None, messages: Messages) -> ActionRow:
        action = result.action
        known = _message_of(action, messages)
        message, sent = (known.message, known.place) if known is not None else (None, -1)
        return ActionRow(
            kind=action.kind.value,
            node=action.node,
            peer=action.peer,
            what=self.clause(action, messages),
            data=_shown(message.data, _SHOWN_CHARS) if message is not None else "",
            sent=sent,
            sender=message.stack[0] if message is not None and message.stack else "",
            printed=_shown(result.wrote, _SHOWN_CHARS),
            ended=_ended(result),
            role="first" if pair and action == pair[0] else "second" if pair and action == pair[1] else "",
        )

    def _verdict(self, results: Sequence[ActionResult], failure: RunFailure) -> Verdict:
        """Of a node that ended, or waits for ever: its own output."""
        output = b"".join(each.wrote for each in results if each.action.node == failure.node)[-_PRINTED:]
        text = output.decode("utf-8", "replace")
        if failure.wrong is Wrong.SIGNAL:
            return Verdict(Outcome.SIGNAL, None, failure.value, text, False, 0.0)
        code = failure.value if failure.wrong is Wrong.STATUS else None
        outcome = Outcome.TIMEOUT if failure.wrong in (Wrong.DEADLOCK, Wrong.DIVERGENCE) else Outcome.FAIL
        return Verdict(outcome, code, None, text, False, 0.0, signs(text.splitlines()))


def _id(failure: RunFailure, message: str) -> str:
    """Nodes that differ in their number only have the same bugs."""
    shown = f"{failure.wrong} {failure.value} {masked(message)}"
    return hashlib.blake2b(shown.encode(), digest_size=6).hexdigest()


def messages_of(run: NodeRun) -> Messages:
    """All that was sent in a run."""
    return {
        delivery_of(message): Sent(message, at, result.action.kind is ActionKind.CONNECT)
        for at, result in enumerate((*run.set_up, *run.results))
        for message in result.sent
    }


def _message_of(action: Action, messages: Messages) -> Sent | None:
    """The message that an action delivers or loses; None if it is of none, or of one that is not known."""
    return messages.get(action._replace(kind=ActionKind.DELIVER)) if action.kind in OF_MESSAGES else None


def _shown(data: bytes, chars: int) -> str:
    """The first bytes of a message, as text where they are printable."""
    text = "".join(_characters(data[: chars + 1]))
    return text[:chars] + ("…" if len(data) > chars or len(text) > chars else "")


def _characters(data: bytes) -> Iterator[str]:
    for byte in data.rstrip(b"\r\n\0"):
        yield chr(byte) if 32 <= byte < 127 and byte != 96 else f"\\x{byte:02x}"


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
