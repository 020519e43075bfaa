"""A check that is given many folders judges each as a check that is given this one, however badly it behaves."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.checker.execution.process import Limits
from crashcheck.checker.results import Outcome
from crashcheck.checker.states.by_deviation import states_of_deviation
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.verdicts.copies import CopiesDiffer
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.command import Command
from crashcheck.config.folders import folders_command
from crashcheck.errors import CrashcheckError
from crashcheck.one_folder import Answers
from support.checked_worlds import World, two_stores
from support.tracing import TraceBuilder

# `judge` passes unless the store at 64 survived without the one at 0, or the bytes are not those of the run.
# It is started for each state: what one case needs, it imports.
CHECK = """
import os, sys
def judge(folder):
    data = open(folder + "/p", "rb").read()
    return data[0] in (0, 1) and data[64] in (0, 2) and data[0] >= data[64] // 2
def answer(folder, passes, why=""):
    print("ok" if passes else "fail", folder, *[why] * bool(why), flush=True)
def lines():
    for number, line in enumerate(open(sys.argv[1])):
        folder, acked, printed = line.rstrip("\\n").split("\\t")
        yield number, folder
STARTS = {starts!r}
open(STARTS, "a").write(".")
"""
GOOD = "for number, folder in lines(): answer(folder, judge(folder))\n"


@pytest.fixture
def given_folders(tmp_path: Path) -> Callable[..., World]:
    def make(body: str, *, timeout_s: float = 60) -> World:
        script = tmp_path / "check.py"
        script.write_text(CHECK.replace("{starts!r}", repr(str(tmp_path / "starts"))) + body)
        command = folders_command(Command("check {folders}", (sys.executable, "-S", str(script), "{folders}")))
        return World(tmp_path / "world", command, two_stores, limits=Limits(timeout_s=timeout_s))

    return make


def states(world: World) -> list[CrashState]:
    return list(chain.from_iterable(states_of_deviation(world.space, d) for d in range(3)))


def judged(executor: Executor, world: World) -> list[bool]:
    """The verdicts on all states, given one after another."""
    out = []
    for state in states(world):
        verdict = executor.result(executor.submit(state))
        assert verdict is not None
        out.append(verdict.passed)
    return out


def alone(executor: Executor, world: World) -> list[bool]:
    return [executor.run(state).passed for state in states(world)]


def test_one_process_judges_all_states_but_those_that_are_confirmed(
    given_folders: Callable[..., World], tmp_path: Path
) -> None:
    world = given_folders(GOOD)
    with world.executor() as executor:
        assert executor.try_copies().passed
        before = len((tmp_path / "starts").read_text())
        verdicts = judged(executor, world)
        confirmed = verdicts.count(False) + verdicts.count(True).bit_length()
        assert len((tmp_path / "starts").read_text()) - before == confirmed < len(verdicts)
        assert verdicts == alone(executor, world)
        assert {True, False} == set(verdicts)
        assert executor.notes == ()


# Each ends or answers badly at some folder, and is right about a folder that it is given alone.
HOSTILE = {
    "dies": "    if number == 2: os._exit(3)\n    answer(folder, judge(folder))\n",
    "is killed": "    if number == 2: os.kill(os.getpid(), 11)\n    answer(folder, judge(folder))\n",
    "ends early": "    answer(folder, judge(folder))\n    if number == 2: break\n",
    "closes its output": "    if number == 2: os.close(1)\n    else: answer(folder, judge(folder))\n",
    "answers twice": "    answer(folder, judge(folder))\n    if number == 2: answer(folder, not judge(folder))\n",
    "answers about the folder before": "    if number == 2: answer(last, True)\n"
    "    last = folder\n    answer(folder, judge(folder))\n",
    "writes to the folder before": "    if number and os.path.exists(last): open(last, 'wb').write(b'x' * 4096)\n"
    "    last = os.path.realpath(folder) + '/p'\n    answer(folder, judge(folder))\n",
    "writes to its folder": "    answer(folder, judge(folder))\n    open(folder + '/p', 'wb').write(b'x' * 4096)\n"
    "    open(folder + '/q', 'wb').write(b'x')\n",
    "remembers paths": "    cache = globals().setdefault('cache', dict())\n    key = os.path.realpath(folder)\n"
    "    answer(folder, cache.setdefault(key, judge(folder)))\n",
    "prints other lines": "    print('ok 1 -', folder); print('fail', number)\n    answer(folder, judge(folder))\n"
    "    print('done'); print('ok', flush=True)\n",
    "leaves a process": "    import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True, cwd='/')\n"
    "    answer(folder, judge(folder))\n",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_verdicts_are_those_of_a_process_for_each_state(how: str, given_folders: Callable[..., World]) -> None:
    world = given_folders(f"for number, folder in lines():\n{HOSTILE[how]}")
    with world.executor() as executor:
        assert executor.try_copies().passed
        assert judged(executor, world) == alone(executor, world)


def test_a_folder_that_is_not_answered_is_given_to_another_process_after_the_time_out(
    given_folders: Callable[..., World],
) -> None:
    body = "for number, folder in lines():\n    if number < 4: answer(folder, judge(folder))\n"
    world = given_folders(body, timeout_s=3)
    with world.executor() as executor:
        assert executor.try_copies().passed
        (state, *_) = states(world)
        assert executor.result(executor.submit(state)).passed  # type: ignore[union-attr]


def test_a_check_that_repeats_its_first_answer_is_found_out_before_the_search(
    given_folders: Callable[..., World],
) -> None:
    body = "first = None\nfor number, folder in lines():\n    first = judge(folder) if number == 0 else first\n"
    world = given_folders(body + "    answer(folder, first)\n")
    with world.executor() as executor:
        assert executor.try_copies().passed
        (note,) = executor.notes
        assert "{folders}: on the final image, or on that with all that was written inverted" in note
        assert judged(executor, world) == alone(executor, world)


def test_a_check_that_passes_what_it_rejects_alone_ends_the_use_of_many_folders(
    given_folders: Callable[..., World],
) -> None:
    world = given_folders("for number, folder in lines(): answer(folder, number > 3 or judge(folder))\n")
    with world.executor() as executor:
        assert executor.try_copies().passed
        failing = next(state for state in states(world) if not executor.run(state).passed)
        with pytest.raises(CopiesDiffer, match=r"^the check passes after other folders, and fails \(fail\) in a proc"):
            executor.result(executor.submit(failing))


def test_a_check_that_answers_when_its_input_ends_gets_a_process_for_each_state(
    given_folders: Callable[..., World],
) -> None:
    world = given_folders("for folder in [one for _, one in lines()]: answer(folder, judge(folder))\n", timeout_s=3)
    with world.executor() as executor:
        executor.try_copies()
        assert len(executor.notes) == 1
        assert judged(executor, world) == alone(executor, world)


@pytest.mark.parametrize(
    ("uses", "what"),
    [
        ("kept = open(folder + '/p')", "{pool}/p"),
        ("os.chdir(folder)", "{pool}"),
        ("import mmap; kept = mmap.mmap(os.open(folder + '/p', os.O_RDWR), 4096)", "{pool}/p"),
        ("import subprocess; subprocess.Popen(['sleep', '1000'], cwd=folder)", "{pool}"),
    ],
)
def test_a_check_that_still_uses_a_folder_when_it_answers_gets_one_folder(
    uses: str, what: str, given_folders: Callable[..., World]
) -> None:
    world = given_folders(
        f"for number, folder in lines():\n    passes = judge(folder); {uses}\n    answer(folder, passes)\n"
    )
    with world.executor() as executor:
        assert executor.try_copies().passed
        verdicts = judged(executor, world)
        assert verdicts == alone(executor, world)
        (note,) = executor.notes
        still = f"the check still uses {what} when it answers: it must close a folder's files before"
        assert note.endswith(f"in spite of {{folders}}: {still}")


def test_what_a_check_has_started_stays_as_long_as_its_process(given_folders: Callable[..., World]) -> None:
    served = (
        "import subprocess\nwaits = 'import os, time\\nif not os.fork(): time.sleep(1000)'\n"
        "server = subprocess.Popen([sys.executable, '-S', '-c', waits])\n"
    )
    body = "server.wait()\nfor number, folder in lines():\n    (child,) = PIDS()\n"
    pids = "PIDS = lambda: [p for p in os.listdir('/proc') if p.isdigit() and MARK in CMD(p)]\n"
    mark = "MARK = b'time.sleep(1000)'\n"
    cmd = (
        "def CMD(p):\n    try:\n        environ = open(f'/proc/{p}/environ', 'rb').read()\n"
        "        own = f'STAYS={os.getpid()}\\0'.encode() in environ\n"
        "        return open(f'/proc/{p}/cmdline', 'rb').read() if own else b''\n    except OSError: return b''\n"
    )
    named = "os.environ['STAYS'] = str(os.getpid())\n"
    world = given_folders(named + mark + cmd + pids + served + body + "    answer(folder, judge(folder))\n")
    with world.executor() as executor:
        assert executor.try_copies().passed
        assert judged(executor, world) == alone(executor, world)
        assert executor.notes == ()


@pytest.mark.parametrize(
    ("body", "outcome", "said"),
    [
        (GOOD, Outcome.PASS, "ok\n"),
        ("for _, folder in lines(): answer(folder, False, 'why not')", Outcome.FAIL, "why not\n"),
        ("for _, folder in lines(): answer(folder, True); os._exit(3)", Outcome.FAIL, "ok\n"),
        ("os.abort()", Outcome.SIGNAL, ""),
        ("os.kill(os.getpid(), 9)", Outcome.SIGNAL, ""),
        ("pass", Outcome.FAIL, "The check gave no answer: "),
        (
            "for _, folder in lines(): answer(folder, True); answer(folder, True)",
            Outcome.FAIL,
            "gave 2 answers for one",
        ),
        ("for _, folder in lines(): print('ok', folder, end='')", Outcome.FAIL, "The check gave no answer: "),
        ("import subprocess; subprocess.Popen(['sleep', '1000'])\n" + GOOD, Outcome.PASS, "ok\n"),
    ],
)
def test_a_process_that_is_given_one_folder_ends_as_it_judges_that(
    body: str, outcome: Outcome, said: str, given_folders: Callable[..., World]
) -> None:
    world = given_folders(body)
    with world.executor() as executor:
        verdict = executor.run_final()
        assert verdict.outcome is outcome
        assert said in verdict.output


def test_what_a_person_is_shown_judges_a_folder(given_folders: Callable[..., World], tmp_path: Path) -> None:
    world = given_folders(GOOD)
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "p").write_bytes(bytes(4096))
    line = world.setup.command.shown(str(tmp_path / "a b"), 0, "printed")
    done = subprocess.run(["/bin/sh", "-c", line], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"ok {tmp_path / 'a b'}\n"


def test_a_program_that_is_not_there_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(CrashcheckError, match=r"^the check program \./missing does not exist"):
        World(tmp_path / "world", folders_command(Command("", ("./missing", "{folders}"))), two_stores)


@pytest.mark.parametrize(
    ("printed", "answers", "other"),
    [
        ("ok /f\n", [(True, b"")], b""),
        ("fail /f\r\n", [(False, b"")], b""),
        ("fail /f it is torn\n", [(False, b"it is torn")], b""),
        ("ok /f but\n", [], b"ok /f but\n"),
        ("ok /folder\n", [], b"ok /folder\n"),
        ("fail /f2\n", [], b"fail /f2\n"),
        ("okay /f\nok\nOK /f\n ok /f\n", [], b"okay /f\nok\nOK /f\n ok /f\n"),
        ("ok /f", [], b"ok /f"),
        ("ok /f\nfail /f\n", [(True, b""), (False, b"")], b""),
    ],
)
def test_an_answer_is_a_whole_line_about_the_folder(
    printed: str, answers: list[tuple[bool, bytes]], other: bytes
) -> None:
    for size in (1, 3, 100):
        taken = Answers("/f")
        data = printed.encode()
        rest = b"".join(taken.add(data[at : at + size]) for at in range(0, len(data), size)) + taken.end()
        assert (taken.given, rest) == (answers, other)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., World]:
    """Worlds with stores as listed, and a check that passes where the bytes' sum, by a salt, has a remainder."""
    folder = tmp_path_factory.mktemp("generated")
    numbers = iter(range(10**6))
    body = """
import sys
salt = int(sys.argv[2])
for line in open(sys.argv[1]):
    folder, acked, _ = line.split("\\t")
    data = open(folder + "/p", "rb").read()
    worth = sum((at + 1) * value for at, value in enumerate(data)) * 31 + int(acked)
    print("ok" if not any(data) or worth % salt else "fail", folder, flush=True)
"""
    (folder / "check.py").write_text(body)

    def make(stores: list[tuple[int, int, bool]], salt: int) -> World:
        def script(t: TraceBuilder) -> None:
            for number, (line, value, synced) in enumerate(stores, 1):
                t.begin(number)
                t.store("p", 64 * line, 8, value)
                if synced:
                    t.clwb("p", 64 * line)
                    t.sfence()
                t.end(number)

        words = (sys.executable, "-S", str(folder / "check.py"), "{folders}", str(salt))
        return World(folder / f"{next(numbers)}", folders_command(Command(shlex.join(words), words)), script)

    return make


_STORES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200), st.booleans()), min_size=1, max_size=5)


@settings(max_examples=5, deadline=None)
@given(_STORES, st.integers(2, 5))
def test_verdicts_on_generated_runs_are_those_of_a_process_for_each_state(
    generated: Callable[..., World], stores: list[tuple[int, int, bool]], salt: int
) -> None:
    world = generated(stores, salt)
    with world.executor() as executor:
        executor.try_copies()
        assert judged(executor, world) == alone(executor, world)
