"""What one action of an execution leads to, while it happens, and as log.jsonl has it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from crashcheck.runtime.nodes.actions import ActionResult, Compared, DiskState, Message, ThreadWait


@dataclass(slots=True)
class ActionStep:
    """What an action has led to so far; `ran`: the nodes that it ran.

    `fired`: timers; `first`: one of them had not ticked before.
    `seen`: whether anybody else may see it: something was sent, written, connected or ended.
    `changed`: whether files or output may differ from before.
    `compared`: by node and comparison of times, when its outcome is another one, ns.
    """

    sent: list[Message] = field(default_factory=list)
    read_clock: bool = False
    wrote: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    ended: int | None = None
    disk: DiskState | None = None
    thread: ThreadWait | None = None
    fired: int = 0
    first: bool = False
    seen: bool = False
    changed: bool = False
    ran: set[int] = field(default_factory=set)
    compared: dict[tuple[int, Compared], list[int]] = field(default_factory=dict)


def log_line(result: ActionResult) -> str:
    """An action and what it led to, as a line of log.jsonl."""
    sent = [{**message._asdict(), "data": message.data.hex()} for message in result.sent]
    for message in sent:
        del message["call"]  # a number of this execution only
    lost = {"lost": result.disk.lost} if result.disk else {}
    entry = {**result.action._asdict(), "sent": sent, "wrote": result.wrote.hex(), "ended": result.ended, **lost}
    return json.dumps(entry) + "\n"
