"""Paths that follow the run of a token."""

from __future__ import annotations

import pytest

from crashcheck.checker.nodes.paths import Branch, PhasedChoice, SleepPath, SteeredPath, UnevenChoice
from crashcheck.checker.nodes.runs import NodeRole, NodeRun, RunRules, execute
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, LEAST_WRITTEN, Action, ActionKind
from support.message_programs import MessageProgram, MessageWorld, all_to_all, two_phase_commit

TIMER = Action(ActionKind.TIMER, 0, -1, 7)


def followed(program: MessageProgram, wanted: list[Action]) -> tuple[NodeRun, SteeredPath]:
    path = SteeredPath(wanted)
    return execute(MessageWorld(program), path, RunRules([NodeRole("n")] * program.nodes, 300)), path


def orders(program: MessageProgram) -> list[Action]:
    """The actions of a run that takes the last one that is possible."""
    world, chosen = MessageWorld(program), list[Action]()
    while enabled := world.enabled():
        result = world.take(enabled[-1])
        chosen += [result.action] if result.action.kind is not ActionKind.START else []
    return chosen


def test_a_token_of_the_same_program_is_followed_to_its_end() -> None:
    wanted = orders(two_phase_commit())
    run, path = followed(two_phase_commit(), wanted)
    assert (list(run.chosen), path.departed, path.left) == (wanted, None, 0)


def test_timers_may_be_due_at_other_times() -> None:
    wanted = orders(two_phase_commit())
    run, path = followed(two_phase_commit(), [action._replace(due_ns=5) for action in wanted])
    assert (list(run.chosen), path.departed) == (wanted, None)


def test_a_run_departs_where_an_action_cannot_come_and_the_rest_is_followed() -> None:
    wanted = orders(all_to_all(3))
    run, path = followed(all_to_all(3), [*wanted[:2], TIMER, *wanted[2:]])
    assert list(run.chosen) == wanted
    assert (path.departed, path.left) == ((2, TIMER), 1)


def test_a_run_ends_with_the_last_action_of_the_token() -> None:
    wanted = orders(all_to_all(3))
    run, path = followed(all_to_all(3), wanted[:2])
    assert (list(run.chosen), path.departed) == (wanted[:2], None)


def test_in_some_random_runs_a_node_times_out_twelve_times_while_a_message_to_it_is_under_way() -> None:
    """Of choices that are uniform, one run in 4,096 does."""
    message = Action(ActionKind.DELIVER, 0, 1)

    def ticks(seed: int) -> int:
        choose = UnevenChoice(str(seed))
        return next((number for number in range(300) if choose([message, TIMER]) == message), 300)

    counts = [ticks(seed) for seed in range(100)]
    assert counts.count(0) >= 25
    assert sum(count >= 12 for count in counts) >= 5


def test_a_crash_may_come_at_any_time_of_a_random_run() -> None:
    crash, usual = Action(ActionKind.CRASH_PROCESS, 0), [Action(ActionKind.DELIVER, 0, 1), TIMER]

    def until_crash(seed: int) -> int:
        choose = UnevenChoice(str(seed))
        return next((number for number in range(300) if choose([*usual, crash]) == crash), 300)

    places = [until_crash(seed) for seed in range(100)]
    assert all(sum(low <= place < high for place in places) >= 10 for low, high in ((0, 10), (10, 100), (100, 300)))


def test_random_choices_are_those_of_their_seed() -> None:
    actions = [Action(ActionKind.DELIVER, 0, peer) for peer in range(1, 4)]
    choices = [[choose(actions) for _ in range(100)] for choose in map(UnevenChoice, "aab")]
    assert choices[0] == choices[1] != choices[2]


def test_in_some_phases_a_node_times_out_thirty_times_while_a_message_to_it_is_held() -> None:
    """Of choices that are uniform, one run in 2^30 does."""
    message, other = Action(ActionKind.DELIVER, 0, 1), Action(ActionKind.TIMER, 1, -1, 7)

    def ticks(seed: int) -> int:
        choose = PhasedChoice(str(seed))
        return next((number for number in range(300) if choose([message, TIMER, other]) == message), 300)

    counts = [ticks(seed) for seed in range(100)]
    assert sum(count >= 30 for count in counts) > 5
    assert sum(count == 0 for count in counts) > 20


def test_in_some_phases_time_passes_for_all_nodes_of_one_clock_while_a_message_is_held() -> None:
    """Of one node alone it cannot pass, so each of forty timers is another node's."""
    message = Action(ActionKind.DELIVER, 0, 1)

    def ticks(seed: int) -> int:
        choose = PhasedChoice(str(seed), one_clock=True)
        timers = (Action(ActionKind.TIMER, number % 3, -1, number) for number in range(300))
        return next((number for number, timer in enumerate(timers) if choose([message, timer]) == message), 300)

    counts = [ticks(seed) for seed in range(100)]
    assert sum(count >= 40 for count in counts) > 10
    assert counts.count(300) < 10


def test_phases_are_the_same_for_one_seed_and_take_failures_a_few_times_at_most_in_most_runs() -> None:
    actions = [Action(ActionKind.DELIVER, 0, 1), TIMER, Action(ActionKind.CRASH_PROCESS, 0)]
    choices = [[choose(actions) for _ in range(100)] for choose in map(PhasedChoice, "aab")]
    assert choices[0] == choices[1] != choices[2]
    crashes = sorted(
        sum(choose(actions).kind is ActionKind.CRASH_PROCESS for _ in range(100))
        for choose in (PhasedChoice(str(seed)) for seed in range(99))
    )
    assert crashes[0] == 0 < crashes[49] < 20


def test_after_a_crash_the_node_that_was_promised_something_and_the_others_hear_nothing_of_each_other() -> None:
    """Node 2 has sent something to node 0 and crashed; time passes for node 1 while what node 0 sent it is held."""
    promise, news = Action(ActionKind.DELIVER, 0, 2), Action(ActionKind.DELIVER, 1, 0)
    back, timers = Action(ActionKind.RESTART, 2), [Action(ActionKind.TIMER, node, -1, 7) for node in range(2)]

    def order(seed: int) -> list[Action]:
        choose = PhasedChoice(str(seed), crashed=2)
        left, chosen = [news, promise, back, *timers], list[Action]()
        while len(chosen) < 20:
            chosen.append(choose(left))
            left = [action for action in left if action in timers or action != chosen[-1]]
        return chosen

    orders = [order(seed) for seed in range(200)]
    assert all({*chosen[:2]} == {promise, back} for chosen in orders)
    assert sum(news not in chosen for chosen in orders) > 50
    assert sum(news in chosen for chosen in orders) > 20


def test_after_a_crash_one_node_gets_what_the_machine_had_sent_and_the_others_do_not() -> None:
    sent, back = [Action(ActionKind.DELIVER, node, 2) for node in range(2)], Action(ActionKind.RESTART, 2)

    def begins(seed: int) -> list[Action]:
        choose, left = PhasedChoice(str(seed), crashed=2), [*sent, back, TIMER]
        chosen = [choose(left)]
        return [*chosen, choose([action for action in left if action != chosen[0]])]

    begun = [begins(seed) for seed in range(100)]
    assert all(back in chosen and len({*chosen} & {*sent}) == 1 for chosen in begun)
    assert all(sum(message in chosen for chosen in begun) > 20 for message in sent)


@pytest.mark.parametrize("seed", ["", "1", "2", "3"])
def test_after_a_crash_that_begins_a_random_run_the_disk_keeps_less_than_all_if_it_may(seed: str) -> None:
    crash, other = Action(ActionKind.CRASH_MACHINE, 0), Action(ActionKind.CRASH_MACHINE, 1)
    kept = [Action(ActionKind.RESTART, 0, channel=name) for name in (ALL_WRITTEN, LEAST_WRITTEN, 6)]
    begun = SleepPath(Branch((crash,), seed=seed))
    begun.begin(one_clock=False)
    assert begun.next([crash, other]) == crash
    assert (begun.next(kept) == kept[0]) == (seed == "")
    alone = SleepPath(Branch((crash,), seed=seed))
    alone.begin(one_clock=False)
    assert [alone.next([crash]), alone.next(kept[:1])] == [crash, kept[0]]
