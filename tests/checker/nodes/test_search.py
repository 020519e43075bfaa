"""Searches over the orders of toy nodes: what is found, in its smallest form, and in words."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest

from crashcheck.checker.budget import Budget, Meter
from crashcheck.checker.evidence import ActionOrder
from crashcheck.checker.nodes import search as nodes_search
from crashcheck.checker.nodes.describe import Describer
from crashcheck.checker.nodes.paths import Branch, SleepPath
from crashcheck.checker.nodes.run_processes import Copied
from crashcheck.checker.nodes.runs import NodeRole, RunChecks, RunRules, StateChecks, execute, execution_of
from crashcheck.checker.nodes.search import NodeSearch, NodeSearchResult
from crashcheck.checker.nodes.strategies import NodePlan, NodeStrategy
from crashcheck.checker.results import Location, Outcome, StopReason, Verdict
from crashcheck.checker.search.schedules import Diverged
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult, NodeError, World
from support.message_programs import Does, MessageProgram, MessageWorld, two_phase_commit

STRATEGIES: Sequence[NodeStrategy] = ("random", "dfs", "dpor", "bounded-dpor", "hybrid")
CONFIGURED = Location("crashcheck.toml", 1, 0, "", "", ())


def searched(
    program: MessageProgram,
    strategy: NodeStrategy = "dpor",
    jobs: int = 1,
    ends: Sequence[int] = (),
    states: int | None = None,
    seconds: float | None = None,
    world: Callable[[MessageProgram], MessageWorld] = MessageWorld,
    copied: Copied | None = None,
) -> NodeSearchResult:
    roles = [NodeRole(f"n{node}", ends=node in ends) for node in range(program.nodes)]
    return NodeSearch(
        lambda: world(program),
        RunRules(roles, 300, program.failures),
        NodePlan(strategy, runs=200, rounds=4, backtracks=20),
        Describer(roles, "none", CONFIGURED),
        lambda actions: repr(tuple(actions)),
        Budget(seconds, states),
        jobs=jobs,
        copied=copied,
    ).run()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_commit_after_the_first_yes_is_found_and_named_by_the_two_votes(strategy: NodeStrategy) -> None:
    found = searched(two_phase_commit(planted=True, votes="yyn"), strategy, states=50)
    (finding,) = found.findings
    yes = "n1" if "n1" in finding.message else "n2"  # they differ in their number only
    assert finding.message == f"n3 ends with status 1 if `y` from {yes} to n0 is delivered before `n` from n3 to n0"
    shown = finding.evidence
    assert isinstance(shown, ActionOrder)
    assert [row.what for row in shown.rows if row.kind != "start"] == [
        f"`prepare` from n0 to {yes} is delivered",
        "`prepare` from n0 to n3 is delivered",
        f"`y` from {yes} to n0 is delivered",
        "`commit` from n0 to n3 is delivered",
        "not yet: `n` from n3 to n0",
    ]
    assert [row.role for row in shown.rows[-3:]] == ["first", "", "second"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_phase_commit_as_it_should_be_has_no_findings(strategy: NodeStrategy) -> None:
    found = searched(two_phase_commit(votes="yn" if strategy == "dfs" else "yyn"), strategy)
    assert (found.findings, found.uncertain, found.stop_reason) == ((), (), StopReason.EXHAUSTED)


def lost_reply(retries: bool) -> MessageProgram:
    """A client asks a server, and waits for the answer; with a timer it asks again."""

    def starts(node: int) -> Does:
        return Does("", [(1, "ask")], timer=retries) if node == 0 else Does("")

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        return Does("", [(0, "answer")]) if node else Does("", ends=0)

    def fires(node: int, memory: str) -> Does:
        return Does(memory, [(1, "ask")], timer=True)

    return MessageProgram(2, starts, receives, fires, failures={"loss": 1})


def test_a_lost_message_that_nobody_repeats_is_a_deadlock() -> None:
    found = searched(lost_reply(retries=False), ends=[0])
    assert [finding.message for finding in found.findings] == [
        "n0 waits for ever if `answer` from n1 to n0 is lost",
        "n0 waits for ever if `ask` from n0 to n1 is lost",
    ]


class Placed(MessageWorld):
    """All messages are sent by one line."""

    def stacks(self) -> Mapping[int, tuple[str, ...]]:
        return {0: ("ask (client.py:7)",)}


def test_a_finding_without_a_pair_is_where_the_message_was_sent_that_its_sentence_names() -> None:
    program = lost_reply(retries=False)
    roles = [NodeRole("n0", ends=True), NodeRole("n1")]
    rules, describer = RunRules(roles, 300, program.failures), Describer(roles, "none", CONFIGURED)
    search = NodeSearch(
        lambda: MessageWorld(program),
        rules,
        NodePlan("dpor"),
        describer,
        repr,
        Budget(),
        placing=lambda: Placed(program),
    )
    places = [(one.location.file, one.location.line, one.location.function) for one in search.run().findings]
    assert places == [("client.py", 7, "ask")] * 2


@pytest.mark.parametrize("strategy", ["dfs", "dpor"])
def test_what_a_node_could_still_do_when_the_others_have_ended_is_searched_too(strategy: NodeStrategy) -> None:
    """Node 1 has a timer; by default it fires after node 0, the only one that must end, has ended."""

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        return Does("", ends=0)

    program = MessageProgram(
        3,
        lambda node: Does("", [(0, "end")] if node == 2 else (), timer=node == 1),
        receives,
        lambda node, memory: Does("", ends=1),
    )
    found = searched(program, strategy, ends=[0])
    assert [finding.message for finding in found.findings] == ["n1 ends with status 1 if timer 2 of n1 fires"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_found_does_not_depend_on_how_many_runs_are_made_at_a_time(strategy: NodeStrategy) -> None:
    program = two_phase_commit(planted=True, votes="yny")
    results = [searched(program, strategy, jobs=jobs, states=60) for jobs in (1, 2, 5)]
    assert [(each.findings, each.runs, each.cut, each.states) for each in results] == [
        (results[0].findings, results[0].runs, results[0].cut, results[0].states)
    ] * 3


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_two_runs_at_a_time_are_in_two_processes_on_two_processors(tmp_path: Path) -> None:
    both, here = get_context("fork").Barrier(2), os.getpid()

    def world(program: MessageProgram) -> MessageWorld:
        own = tmp_path / str(os.getpid())
        if not own.exists():
            own.write_text(" ".join(map(str, os.sched_getaffinity(0))))
            both.wait(60)
        return MessageWorld(program)

    searched(two_phase_commit(), "random", jobs=2, states=4, world=world)
    assert str(here) not in os.listdir(tmp_path)
    one, other = (set(map(int, own.read_text().split())) for own in tmp_path.iterdir())
    assert (one | other, one & other) == (os.sched_getaffinity(0), set())


class Exchanging:
    """Each copy passes its process number on with each run, and notes what it hears."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin_copy(self, number: int) -> None: ...

    def news(self) -> Sequence[int]:
        return [os.getpid()]

    def hear_news(self, news: Sequence[int]) -> None:
        with (self._folder / str(os.getpid())).open("a") as heard:
            heard.write("".join(f"{pid}\n" for pid in news))

    def end_copy(self) -> object:
        return None

    def hear(self, kept: object) -> None: ...


def test_what_one_process_found_goes_to_the_other_with_its_next_run(tmp_path: Path) -> None:
    """The first runs of both wait for each other."""
    both, waited = get_context("fork").Barrier(2), set[int]()

    def world(program: MessageProgram) -> MessageWorld:
        if os.getpid() not in waited:
            waited.add(os.getpid())
            both.wait(60)
        return MessageWorld(program)

    searched(two_phase_commit(), "random", jobs=2, states=40, world=world, copied=Exchanging(tmp_path))
    one, other = tmp_path.iterdir()
    assert set(one.read_text().split()) | set(other.read_text().split()) == {one.name, other.name}


def test_an_error_of_a_run_is_the_same_in_a_process_of_its_own() -> None:
    def world(program: MessageProgram) -> MessageWorld:
        raise NodeError("node-seed", "there is none", "make it")

    for jobs in (1, 2):
        with pytest.raises(NodeError) as raised:
            searched(two_phase_commit(), jobs=jobs, world=world)
        assert (raised.value.slug, raised.value.message, raised.value.hint) == ("node-seed", "there is none", "make it")


def test_what_was_found_stays_if_a_process_that_makes_runs_is_killed(tmp_path: Path) -> None:
    def world(program: MessageProgram) -> MessageWorld:
        (tmp_path / str(time.monotonic_ns())).touch()
        if len(os.listdir(tmp_path)) > 60:
            os.kill(os.getpid(), signal.SIGKILL)
        return MessageWorld(program)

    here = os.getpid()
    found = searched(lost_reply(retries=True), "random", jobs=2, world=world)
    assert (os.getpid(), found.stop_reason) == (here, StopReason.WORKER_LOST)
    assert 0 < found.runs <= 60
    assert any("a process that makes runs of the nodes has ended" in warning for warning in found.warnings)


def ping_pong() -> MessageProgram:
    return MessageProgram(
        2,
        lambda node: Does("", [(1, "ping")] if node == 0 else ()),
        lambda node, memory, sender, data: Does("", [(sender, data)]),
    )


def test_runs_that_reach_the_bound_of_actions_are_no_proof() -> None:
    states = searched(ping_pong()).states
    assert (states.executed, states.feasible_exact) == (1, False)
    assert states.feasible_note == "there may be more runs: 1 run reached the bound of 300 actions"


@pytest.mark.parametrize("strategy", ["dpor", "bounded-dpor", "hybrid"])
def test_runs_that_reach_the_bound_are_made_with_a_crash_as_well(strategy: NodeStrategy) -> None:
    found = searched(replace(ping_pong(), failures={"crashes": 1}), strategy, states=5)
    assert found.warnings == ()


class Forgetful(MessageWorld):
    """A world that fails in the first run only."""

    runs = 0

    def take(self, action: Action) -> ActionResult:
        result = super().take(action)
        if action.kind is ActionKind.DELIVER and Forgetful.runs == 0:
            return result._replace(ended=1 << 8)
        return result

    def close(self) -> None:
        Forgetful.runs += 1


def test_a_failure_that_is_not_repeated_is_no_finding() -> None:
    Forgetful.runs = 0
    program = two_phase_commit()
    roles = [NodeRole(f"n{node}") for node in range(4)]
    search = NodeSearch(
        lambda: Forgetful(program),
        RunRules(roles, 300),
        NodePlan("dfs"),
        Describer(roles, "none", CONFIGURED),
        repr,
        Budget(states=1),
    )
    found = search.run()
    assert (found.findings, found.uncertain, found.states.flaky) == ((), (), 1)
    assert found.warnings == ("a run (n1 ends with status 1) failed, and did not when it was repeated",)


class Uncontrolled(MessageWorld):
    def take(self, action: Action) -> ActionResult:
        self.uncontrolled = {2: ["io_uring"]}
        return super().take(action)


def test_what_a_run_shows_that_is_not_under_control_is_uncertain() -> None:
    program = two_phase_commit(planted=True, votes="yyn")
    roles = [NodeRole(f"n{node}") for node in range(4)]
    describer = Describer(roles, "none", CONFIGURED)
    search = NodeSearch(
        lambda: Uncontrolled(program), RunRules(roles, 300), NodePlan("dpor"), describer, repr, Budget()
    )
    found = search.run()
    assert (found.findings, found.uncontrolled) == ((), ("n2: io_uring",))
    assert [finding.uncertain for finding in found.uncertain] == [
        "the run is not fully under control: n2: io_uring; to settle it: docs/nodes.md#what-is-not-controlled"
    ]


def test_a_message_that_need_not_be_delivered_twice_is_delivered() -> None:
    """Any `add` after the first makes node 1 fail: a second copy, or the second message."""
    program = MessageProgram(
        2,
        lambda node: Does("", [(1, "add"), (1, "add")] if node == 0 else ()),
        lambda node, memory, sender, data: Does("one", ends=1 if memory else None),
        failures={"duplicate": 1},
    )
    found = searched(program)
    assert {finding.message for finding in found.findings} == {"n1 ends with status 1 in the default order of actions"}


def test_of_a_message_that_is_delivered_twice_no_delivery_is_before_the_other() -> None:
    program = MessageProgram(
        2,
        lambda node: Does("", [(1, "add")] if node == 0 else ()),
        lambda node, memory, sender, data: Does("one", ends=1 if memory else None),
        failures={"duplicate": 1},
    )
    found = searched(program)
    assert [finding.message for finding in found.findings] == [
        "n1 ends with status 1 if `add` from n0 to n1 is delivered twice"
    ]


def test_a_message_that_came_too_late_to_a_node_that_ended_is_named() -> None:
    program = MessageProgram(
        2,
        lambda node: Does("", [(1, "first"), (1, "other"), (1, "second")] if node == 0 else ()),
        lambda node, memory, sender, data: Does(
            memory + data, ends=1 if (memory + data).startswith("second") else None
        ),
    )
    assert [finding.message for finding in searched(program).findings] == [
        "n1 ends with status 1 if `second` from n0 to n1 is delivered before `first` from n0 to n1"
    ]


def requests_by_timers() -> MessageProgram:
    """30 requests in any order, and 10 by a timer: one of these fails if it follows 15 others."""

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        return Does(memory + "r", [(0, "answer")] if node else (), ends=1 if len(memory) > 14 and data == "9" else None)

    return MessageProgram(
        2,
        lambda node: Does("", [(1, str(at)) for at in range(30)] if node == 0 else (), timer=node == 0),
        receives,
        lambda node, memory: Does(memory + "t", [(1, "9")], timer=len(memory) < 10),
        failures={"loss": 3, "crashes": 1},
    )


def test_a_search_goes_on_while_a_failure_is_explained_and_an_interrupted_one_reports_it() -> None:
    program, made = requests_by_timers(), list[MessageWorld]()

    def world() -> MessageWorld:
        if len(made) == 60:
            raise KeyboardInterrupt
        made.append(MessageWorld(program))
        return made[-1]

    roles = [NodeRole("n0"), NodeRole("n1")]
    describer = Describer(roles, "none", CONFIGURED)
    found = NodeSearch(world, RunRules(roles, 300, program.failures), NodePlan(), describer, repr, Budget()).run()
    assert found.stop_reason is StopReason.INTERRUPTED
    assert [finding.note for finding in found.findings] == ["the search ended before it was minimised"]
    assert found.runs >= 25


@pytest.mark.parametrize("jobs", [1, 3])
def test_runs_with_many_actions_out_of_order_are_minimised_by_halves(jobs: int, tmp_path: Path) -> None:
    """One at a time, 512 runs were needed."""
    program = requests_by_timers()
    made = tmp_path / "made"

    def world() -> MessageWorld:
        with made.open("ab") as file:
            file.write(b".")
        return MessageWorld(program)

    roles = [NodeRole("n0"), NodeRole("n1")]
    describer = Describer(roles, "none", CONFIGURED)
    plan = NodePlan("random", runs=60)
    found = NodeSearch(world, RunRules(roles, 300, program.failures), plan, describer, repr, Budget(), jobs=jobs).run()
    (finding,) = found.findings
    assert isinstance(finding.evidence, ActionOrder)
    assert len(finding.evidence.rows) == 19
    assert made.stat().st_size - found.runs < 150


def one_message(**failures: int) -> MessageProgram:
    return MessageProgram(
        2,
        lambda node: Does("", [(1, "ping")] if node == 0 else ()),
        lambda node, memory, sender, data: Does(""),
        failures=failures,
    )


def test_bounds_that_no_run_drew_on_are_named_with_the_reason() -> None:
    found = searched(one_message(loss=1, reset=1), "dfs")
    assert found.warnings == ("no run (of 2) drew on [bounds] reset = 1: no connection was open",)
    found = searched(one_message(loss=1), "dfs", states=1)
    assert found.warnings == ("no run (of 1) drew on [bounds] loss = 1: the search ended before",)


class WithFault(MessageWorld):
    """A world in which a call met the second of the configured faults."""

    def __init__(self, program: MessageProgram) -> None:
        super().__init__(program)
        self.met_faults = frozenset({1})


def test_a_fault_with_a_number_that_no_call_met_is_named() -> None:
    describer = Describer([], "none", CONFIGURED, numbered=["recv number 9 of n1 (EIO)", "send number 1 of n1 (EIO)"])
    rules = RunRules([NodeRole("n0"), NodeRole("n1")], 300, {})
    program = one_message()
    found = NodeSearch(lambda: WithFault(program), rules, NodePlan("dpor"), describer, repr, Budget()).run()
    assert found.warnings == ("in no run (of 1) did a call meet [[faults]] 1: recv number 9 of n1 (EIO)",)


class Endless(MessageWorld):
    """A node computes in a chosen action of all that are taken, until it is stopped."""

    def __init__(self, program: MessageProgram, numbers: Iterator[int], at: int) -> None:
        super().__init__(program)
        self._numbers, self._at, self._stopped = numbers, at, Event()

    def take(self, action: Action) -> ActionResult:
        if next(self._numbers) >= self._at:
            assert self._stopped.wait(60), "nobody stops it"
            raise NodeError("controller-ended", "it was stopped", "")
        return super().take(action)

    def stop(self) -> None:
        self._stopped.set()


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("at", [0, 9, 40, 41, 42, 43, 44])  # in the first run, in a later one, while one is repeated
def test_a_node_that_computes_for_ever_ends_with_the_budget(at: int, jobs: int) -> None:
    program, numbers = two_phase_commit(planted=True, votes="yny"), count()
    found = searched(program, "dfs", jobs, seconds=0.5, world=lambda program: Endless(program, numbers, at))
    assert found.stop_reason is StopReason.BUDGET_SECONDS
    assert found.runs <= at


class AfterRestart(RunChecks):
    """Fails if node 0 ends once node 1 has started again."""

    def __init__(self) -> None:
        self._restarted = False

    def after(self, world: World, result: ActionResult) -> Verdict | None:
        self._restarted |= (result.action.kind, result.action.node) == (ActionKind.RESTART, 1)
        fails = self._restarted and result.ended is not None
        return Verdict(Outcome.FAIL, 1, None, "", False, 0.0) if fails else None


def test_two_actions_are_no_pair_if_the_second_one_did_not_happen_in_the_run_that_passes() -> None:
    """That run ends with node 0, before node 1 starts again and sends what would be first."""
    program = MessageProgram(
        3,
        lambda node: Does("", {1: [(1, "data")], 2: [(0, "go")]}.get(node, ())),
        lambda node, memory, sender, data: Does("", ends=None if node else 0),
        failures={"crashes": 1},
    )
    roles = [NodeRole(f"n{node}", ends=node == 0) for node in range(3)]
    rules = RunRules(roles, 300, program.failures, checks=StateChecks(lambda world: AfterRestart(), after_each=True))
    search = NodeSearch(
        lambda: MessageWorld(program), rules, NodePlan("dfs"), Describer(roles, "none", CONFIGURED), repr, Budget()
    )
    messages = [finding.message for finding in search.run().findings]
    assert "the check fails if n1 is killed" in messages
    assert not [text for text in messages if "starts again before `data`" in text]


def test_a_run_that_the_end_of_the_budget_ended_in_a_long_action_is_named() -> None:
    program = two_phase_commit(planted=False, votes="yny")
    found = searched(program, "dfs", seconds=1.5, world=lambda program: Endless(program, count(), 5))
    (warning,) = found.warnings
    assert re.fullmatch(
        r"a run was ended with the search: (\w+) had not come to rest for [01]\.\d s after a message from \w+ to \1 "
        r"is delivered",
        warning,
    )


def test_minimising_leaves_half_of_the_tenth_beyond_the_budget_to_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of which each run takes a second; four are made at a time to minimise one."""
    program, runs = two_phase_commit(planted=True, votes="yyyyyyyyyyn"), list[MessageWorld]()

    def world(program: MessageProgram) -> MessageWorld:
        runs.append(MessageWorld(program))
        return runs[-1]

    monkeypatch.setattr(nodes_search, "Meter", partial(Meter, clock=lambda: float(len(runs))))
    monkeypatch.setattr(nodes_search, "Timer", Mock())
    (finding,) = searched(program, "dfs", seconds=100, world=world).findings
    assert finding.note == "the budget ended before it was minimised"
    assert 100 <= len(runs) < 109


class Counted(MessageWorld):
    """Counts the actions of each run."""

    def __init__(self, program: MessageProgram, taken: list[int]) -> None:
        super().__init__(program)
        self._taken = taken
        taken.append(0)

    def take(self, action: Action) -> ActionResult:
        self._taken[-1] += 1
        return super().take(action)


def test_what_failed_once_is_named_if_the_budget_ends_while_it_is_repeated() -> None:
    program, taken, numbers = two_phase_commit(planted=True, votes="yny"), list[int](), count()
    usual = searched(program, "dfs", states=1, world=lambda program: Counted(program, taken))
    assert (usual.states.failing, len(usual.findings)) == (1, 1)
    found = searched(program, "dfs", seconds=0.5, world=lambda program: Endless(program, numbers, taken[0]))
    assert (found.findings, found.states.failing) == ((), 1)
    (warning,) = found.warnings
    assert warning.endswith(" failed, and the budget ended before it was repeated")


class Unresting(MessageWorld):
    """Does not come to rest in one action of all that are taken, as where other programs have the processors."""

    def __init__(self, program: MessageProgram, numbers: Iterator[int], at: int) -> None:
        super().__init__(program)
        self._numbers, self._at = numbers, at

    def take(self, action: Action) -> ActionResult:
        if action.kind is ActionKind.DELIVER and next(self._numbers) == self._at:
            raise NodeError("node-unrest", "it does not come to rest", "")
        return super().take(action)


@pytest.mark.parametrize("strategy", ["dpor", "hybrid"])
@pytest.mark.parametrize("at", range(0, 40, 3))  # messages of the first runs, in their prefixes and after
def test_a_node_that_once_does_not_come_to_rest_hides_no_run(strategy: NodeStrategy, at: int) -> None:
    program, numbers = two_phase_commit(planted=True, votes="yny"), count()
    found = searched(program, strategy, world=lambda program: Unresting(program, numbers, at))
    usual = searched(program, strategy)
    assert (found.findings, found.runs, found.cut) == (usual.findings, usual.runs, usual.cut)
    (remade,) = [text for text in found.warnings if text not in usual.warnings]
    assert remade.startswith("1 runs were made again, because a node (n"), remade


class Restless(MessageWorld):
    """Never comes to rest when the coordinator hears from a participant; counts how often that is waited for."""

    def __init__(self, program: MessageProgram, waits: list[Action]) -> None:
        super().__init__(program)
        self._waits = waits

    def take(self, action: Action) -> ActionResult:
        if action.kind is ActionKind.DELIVER and action.node == 0:
            self._waits.append(action)
            raise NodeError("node-unrest", "it does not come to rest", "")
        return super().take(action)


def test_a_node_that_never_rests_is_made_again_once_before_its_run_is_minimised() -> None:
    waits: list[Action] = []
    program = two_phase_commit(votes="yyy")
    found = searched(program, "dfs", states=1, world=lambda program: Restless(program, waits))
    assert ["does not come to rest" in finding.message for finding in found.findings] == [True]
    assert len(waits) == 2 + 11  # of these 11 to minimise it


@pytest.mark.parametrize("proved", [True, False])
def test_runs_of_a_node_that_never_rests_are_minimised_by_hasty_ones_and_one_that_waits_proves_it(proved: bool) -> None:
    waits: dict[str, list[Action]] = {"usual": [], "hasty": [], "placing": []}
    program = two_phase_commit(votes="yyy")
    roles = [NodeRole(f"n{number}") for number in range(program.nodes)]
    search = NodeSearch(
        lambda: Restless(program, waits["usual"]),
        RunRules(roles, 300, program.failures),
        NodePlan("random", runs=1, seed=3),
        Describer(roles, "none", CONFIGURED),
        repr,
        Budget(),
        placing=lambda: Restless(program, waits["placing"]) if proved else MessageWorld(program),
        hasty=lambda: Restless(program, waits["hasty"]),
    )
    (finding,) = search.run().findings
    assert len(waits["usual"]) == 2  # the first run, made again
    assert len(waits["hasty"]) > 5
    assert len(waits["placing"]) == proved
    assert ("a smaller run may have come to rest later" in str(finding)) is not proved


def test_a_run_that_is_less_than_its_prefix_is_no_execution() -> None:
    program = two_phase_commit()
    whole = execute(MessageWorld(program), SleepPath(Branch()), RunRules([NodeRole("n")] * program.nodes, 300))
    prefix = Branch(tuple(whole.chosen[:5]))
    stopped = execute(Unresting(program, count(), 3), SleepPath(prefix), RunRules([NodeRole("n")] * program.nodes, 300))
    with pytest.raises(Diverged, match="it ended after 4 choices, before its prefix did"):
        execution_of(stopped)
