"""What workers have to do: the task of a ticket, and how far the images of a worker move for it.

Only the process that has the trace knows that. A task holds patches of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.execution.worker import DURABLE, INITIAL, ISSUED, Exploration, Task
from crashcheck.checker.execution.worker_process import UNKNOWN, Bases
from crashcheck.checker.images import image_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crashcheck.checker.images.piecewise import FilePatch
    from crashcheck.checker.images.transition import Content
    from crashcheck.checker.states.points import CrashPoint
    from crashcheck.checker.states.space import CrashState

FIRST = -1  # instead of a crash point: the image before the workload
FINAL = -2  # the image after it
DAMAGED = -3  # the same with each byte inverted that the workload has written: what a check should reject
INVERTED = bytes(255 - byte for byte in range(256))  # each byte, for bytes.translate


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the check that has ended. `names`: paths of its worker, and what they are called in outputs."""

    point: int  # or FIRST, FINAL, DAMAGED
    ended: Ended
    names: Mapping[str, str]
    place: str = ""  # where it was executed, if not on this machine
    state: CrashState | None = None  # of a run that was executed elsewhere
    doubted: str = ""  # of a run here: where the check has failed on the same state


@dataclass(slots=True)
class Ticket:
    """Runs of the check that were asked for."""

    number: int
    point: int  # or FIRST, FINAL, DAMAGED
    state: CrashState | None
    stages: tuple[bytes, ...]  # files of operations for {ops}: one run per file
    bare: bool  # on the initial image, which stays as it is
    kept_bytes: int | None  # of its output, instead of the limits' value
    limit: TimeLimit | None  # of its time, instead of the limits' value
    # of an exploration: its words, its environment, and when its time is over
    explored: tuple[tuple[str, ...], dict[str, str], float | None] | None = None
    run: Run | None = None  # once it has ended
    doubted: str = ""  # as Run has it
    forks: bool = False  # from a process that waits, if there is one


class Tasks:
    """The tasks of one search."""

    def __init__(
        self,
        content: Content,
        points: Sequence[CrashPoint],
        first: Path,
        timeout_s: float,
        acknowledged: tuple[int, int] | None,
        whole: tuple[int, int],
    ) -> None:
        """`acknowledged`: (operations, bytes) at every point, instead of those of the points; `whole`: by the end."""
        self._content = content
        self._points = points
        self._first = first
        self._timeout_s = timeout_s
        self._always = acknowledged
        self._whole = whole

    def of(self, bases: Bases, ticket: Ticket) -> Task | Exploration:
        """What a worker has to do for a ticket. `bases`: of the worker; where they will be after that is noted."""
        if ticket.explored is not None:
            argv, env, until_s = ticket.explored
            timeout_s = self._timeout_s if ticket.limit is None else ticket.limit.wall_s
            return Exploration(ticket.number, argv, env, timeout_s, until_s)
        return self._of_state(bases, ticket)

    def final(self, stages: tuple[bytes, ...]) -> Task:
        """The check of the image after the workload, for a worker whose base is the first image."""
        return self._of_state([None, None], Ticket(0, FINAL, None, stages, False, None, None))

    def _of_state(self, bases: Bases, ticket: Ticket) -> Task:
        """The same of a ticket that is no exploration."""
        acked, printed = self.acknowledged(ticket.point)
        if ticket.bare:
            return Task(ticket.number, INITIAL, False, (), (), 0, 0, ticket.stages, ticket.kept_bytes)
        if ticket.state is None:
            moved = bases[DURABLE] is not None
            bases[DURABLE] = None
            patches = () if ticket.point == FIRST else _plain(self._content.final())
            patches = tuple(map(_damaged, patches)) if ticket.point == DAMAGED else patches
            return Task(
                *(ticket.number, DURABLE, moved, (), patches, acked, printed, ticket.stages),
                limit=ticket.limit,
                forks=ticket.forks,
            )
        near_full = self._content.near_full(ticket.state)
        image = ISSUED if near_full else DURABLE
        reset, advance = self._move(image, bases[image], ticket.point)
        bases[image] = ticket.point
        patches = _plain(self._content.lost(ticket.state) if near_full else self._content.patches(ticket.state))
        return Task(
            *(ticket.number, image, reset, advance, patches, acked, printed, ticket.stages),
            limit=ticket.limit,
            forks=ticket.forks,
        )

    def _move(self, image: int, base: int | None, point: int) -> tuple[bool, image_folder.Patches]:
        """How a base gets from one crash point (None: the first image) to another.

        (whether it starts from the first image again, patches after that)
        """
        if base == point:
            return False, ()
        content = self._content
        if base == UNKNOWN:
            return True, _plain((content.issued if image == ISSUED else content.durable)(None, point))
        if base is not None and base > point:
            back = (content.taken_back if image == ISSUED else content.durable_back)(base, point)
            if back is not None:
                return False, _plain(back)
            base = None
            reset = True
        else:
            reset = False
        return reset, _plain((content.issued if image == ISSUED else content.durable)(base, point))

    def write_image(self, state: CrashState, folder: Path) -> None:
        """Write a state's image into `folder`, which must not exist."""
        write_image(self._content, self._first, state, folder)

    def write_issued(self, from_point: int | None, to_point: int, folder: Path) -> None:
        """Move the image in `folder` from everything issued by one point to that by a later one; None: make it."""
        patches = _plain(self._content.issued(from_point, to_point))
        if from_point is None:
            image_folder.write_image(self._first, patches, folder)
        else:
            image_folder.patch_image(folder, patches)

    def write_final(self, folder: Path) -> None:
        """Write the image after the workload into `folder`, which must not exist."""
        image_folder.write_image(self._first, _plain(self._content.final()), folder)

    def acknowledged(self, point: int) -> tuple[int, int]:
        """(operations, bytes of output) that were acknowledged by a crash point, or by the end (FINAL, DAMAGED)."""
        if point in (FINAL, DAMAGED):
            return self._whole
        if self._always is not None:
            return self._always
        return (0, 0) if point == FIRST else (int(self._points[point].acked), int(self._points[point].stdout_bytes))


def write_image(content: Content, first: Path, state: CrashState, folder: Path) -> None:
    """Write a state's image into `folder`, which must not exist. `first`: the image before the workload."""
    image_folder.write_image(first, _plain(content.durable(None, state.point)), folder)
    image_folder.patch_image(folder, _plain(content.patches(state)))


def _plain(patches: Iterable[FilePatch]) -> image_folder.Patches:
    return tuple((patch.path, patch.exists, patch.size, patch.writes) for patch in patches)


def _damaged(patch: image_folder.Patch) -> image_folder.Patch:
    """A patch of a file whose bytes are inverted."""
    path, exists, size, writes = patch
    inverted = tuple((offset, data.translate(INVERTED)) for offset, data in writes)
    return (path, exists, size, inverted) if size >= 0 else patch
