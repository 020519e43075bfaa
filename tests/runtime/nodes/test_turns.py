"""Which of several threads of a node continues after a call that waited is an action, where that is asked for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from crashcheck.runtime.nodes.actions import ActionKind
from crashcheck.runtime.nodes.machines import NodeCommand
from support.node_runs import Worlds, complete_runs, output

Program = Callable[[str], str]

# What a thread of the reference waits for: what another wakes it from, a predicate, its time, its turn.
Waits = tuple[str, object]
Thread = Generator[Waits, None, None]


@dataclass
class Reference:
    """The same programs as programs/turns.c, and the rule that their runs follow, written apart."""

    scenario: str
    number: int
    printed: str = ""
    held: bool = True  # main holds the lock
    there: bool = False
    flag: bool = False
    pipes: list[int] = field(default_factory=lambda: [0] * 4)
    ended: int = 0
    threads: list[Thread] = field(default_factory=list)
    ready: deque[int] = field(default_factory=deque)
    yielded: set[int] = field(default_factory=set)
    sleeping: set[int] = field(default_factory=set)
    waiting: list[tuple[object, int]] = field(default_factory=list)  # what others wake, in the order of the waits
    polling: dict[int, Callable[[], bool]] = field(default_factory=dict)
    chooses: bool = False

    def lock(self) -> Thread:
        while self.held:
            yield "woken", "lock"
        self.held = True

    def unlock(self) -> None:
        self.held = False
        self.wake("lock", 1)

    def wake(self, what: object, most: int) -> None:
        woken = [one for one in self.waiting if one[0] == what][:most]
        for one in woken:
            self.waiting.remove(one)
            self.ready.append(one[1])

    def worker(self, at: int) -> Thread:
        if self.scenario == "locks":
            yield from self.lock()
            self.printed += "abcd"[at]
            self.unlock()
        elif self.scenario == "conditions":
            yield from self.lock()
            while not self.there:
                self.unlock()
                yield "woken", "turn"
                yield from self.lock()
            self.unlock()
            self.printed += "abcd"[at]
        elif self.scenario == "pipes":
            if not self.pipes[at]:
                yield "until", lambda: self.pipes[at] > 0
            self.printed += "abcd"[at]
        elif self.scenario == "loops":
            while at == 0 and not self.flag:
                yield "yields", None
            self.flag = True
            self.printed += "abcd"[at]
        elif self.scenario == "steps":
            for _ in range(2):
                self.printed += "abcd"[at]
                yield "yields", None
        self.ended |= 1 << at
        self.wake(("end", at), 1)

    def main(self) -> Thread:
        for at in range(self.number):
            self.threads.append(self.worker(at))
            self.ready.append(at + 1)
        if self.scenario not in ("loops", "steps"):
            yield "sleeps", None
        self.there = True
        self.wake("turn", self.number)
        self.unlock()
        self.pipes = [1] * 4
        for at in range(self.number):
            while not self.ended >> at & 1:
                yield "woken", ("end", at)
        self.printed += "\n"

    def turn(self, thread: int) -> None:
        """Let a thread continue until it waits."""
        self.yielded.clear()
        what, value = next(self.threads[thread], ("ends", None))
        if what == "woken":
            self.waiting.append((value, thread))
        elif what == "until":
            assert callable(value)
            self.polling[thread] = value
        elif what == "sleeps":
            self.sleeping.add(thread)
        elif what == "yields":
            self.yielded.add(thread)
            self.ready.append(thread)

    def rest(self) -> list[int]:
        """Run until there is a choice; what may be chosen: a thread, or -1: the time passes."""
        while True:
            for thread in sorted(thread for thread, there in self.polling.items() if there()):
                del self.polling[thread]
                self.ready.append(thread)
            free = sorted(set(self.ready) - self.yielded)
            self.chooses = len(free) > 1 or (self.chooses and bool(free))
            if self.chooses or not self.ready:
                return [*(free if self.chooses else []), *([-1] if self.sleeping else [])]
            self.turn(self.ready.popleft())

    def take(self, choice: int) -> None:
        if choice < 0:
            self.ready.extend(self.sleeping)
            self.sleeping.clear()
        else:
            self.ready.remove(choice)
            self.turn(choice)


def every_run(scenario: str, number: int) -> Iterator[str]:
    paths: list[list[int]] = [[]]
    while paths:
        path, left = paths.pop(), 0
        reference = Reference(scenario, number)
        reference.threads.append(reference.main())
        reference.ready.append(0)
        while possible := reference.rest():
            if left == len(path):
                paths += [[*path, other] for other in possible[1:]]
                path = [*path, possible[0]]
            reference.take(path[left])
            left += 1
        yield reference.printed


@pytest.mark.parametrize(
    ("scenario", "number", "outputs"),
    [
        ("locks", 2, ("ab", "ba")),
        ("conditions", 2, ("ab", "ba")),
        ("pipes", 2, ("ab", "ba")),
        ("loops", 2, ("ba",)),
        ("loops", 3, ("bac", "bca", "cab", "cba")),
        ("steps", 2, ("abab", "baba")),
    ],
)
def test_all_orders_of_threads_are_run_each_once(
    scenario: str, number: int, outputs: Sequence[str], worlds: Worlds, node_program: Program
) -> None:
    command = NodeCommand((node_program("turns"), scenario, str(number)), explores=True)
    runs = [output(results, 0).decode() for results in complete_runs(lambda: worlds(command), 1)]
    assert Counter(runs) == Counter(every_run(scenario, number))
    assert {one.strip() for one in runs} == set(outputs)


def test_without_it_there_is_one_order(worlds: Worlds, node_program: Program) -> None:
    runs = list(complete_runs(lambda: worlds((node_program("turns"), "locks", "3")), 1))
    assert [output(results, 0) for results in runs] == [b"abc\n"]


def test_one_byte_for_two_threads_is_read_by_either(worlds: Worlds, node_program: Program) -> None:
    command = NodeCommand((node_program("turns"), "one-pipe"), explores=True)
    runs = {output(results, 0) for results in complete_runs(lambda: worlds(command), 1)}
    assert runs == {b"a\n", b"b\n"}


def test_an_order_of_threads_is_the_same_in_ten_runs(worlds: Worlds, node_program: Program) -> None:
    command = NodeCommand((node_program("turns"), "conditions", "3"), explores=True)

    def run() -> list[object]:
        world = worlds(command)
        results = [world.take(world.enabled()[0])]
        while possible := world.enabled():
            results.append(world.take(possible[-1]))
        return [results, world.log(), world.uncontrolled]

    first = run()
    assert first[2] == {}
    assert all(run() == first for _ in range(9))


def test_a_node_is_killed_while_a_choice_is_due(worlds: Worlds, node_program: Program) -> None:
    command = NodeCommand((node_program("turns"), "locks"), explores=True, crash=frozenset({"process"}))
    world = worlds(command)
    world.take(world.enabled()[0])
    assert [action.kind for action in world.enabled()][:2] == [ActionKind.THREAD] * 2
    world.take(next(action for action in world.enabled() if action.kind is ActionKind.CRASH_PROCESS))
    assert {action.kind for action in world.enabled()} == {ActionKind.RESTART}
    world.take(world.enabled()[0])
    assert [action.kind for action in world.enabled()][:2] == [ActionKind.THREAD] * 2
