"""`crashes.check` and `for state in crashes(...)`, in this process: what fails, what passes, and what is refused."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

import pytest

from crashcheck.checker.budget import Meter
from crashcheck.errors import CrashcheckError
from crashcheck.testing import Crashes, CrashFound, CrashTestCase, Settings, State, boundary
from crashcheck.testing.boundary import bounded
from crashcheck.testing.exploration import config_of, to_search
from support.settings_file import SAVED, START, careful, careless, load

EMPTIED = "`cfg.json` can be empty after a crash: `careless` (tests/support/settings_file.py:14) empties it before it"


def accepts(state: State) -> bool:
    return load(state / "cfg.json") in ({}, SAVED)


@pytest.fixture(name="here")
def crashes_in_this_folder(tmp_path: Path) -> Crashes:
    """As the fixture of the plugin, with one core, and the kept states in a known folder."""
    folders = iter(tmp_path / f"{number}" for number in range(9))

    def kept() -> Path:
        folder = next(folders)
        folder.mkdir()
        return folder

    return Crashes(lambda: Settings(kept=kept, again=lambda token: f"again {token[:6]}", jobs=1))


def test_a_careless_save_fails_with_the_loss_the_schedule_and_the_kept_state(here: Crashes, tmp_path: Path) -> None:
    with pytest.raises(CrashFound) as raised:
        here.check(careless, "cfg.json", SAVED, start=START, check=accepts)
    lines = str(raised.value).splitlines()
    assert lines[:4] == [
        f"{EMPTIED} writes it",
        "  | json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "  | in load (settings_file.py:30)",
        "when   crash before the write at tests/support/settings_file.py:14",
    ]
    shown = [" ".join(line.split()[:1] + line.split()[2:]) for line in lines[4:-4]]
    assert shown == [
        *("3 careless is called", "A survived size = 0 tests/support/settings_file.py:14"),
        "--- before the write at tests/support/settings_file.py:14",
        "B not reached [0x0] = 7b 22 61 22 3a 20 31 7d tests/support/settings_file.py:14",
        "note reordering needed: `kill -9` shows it",
    ]
    assert lines[-4:] == [
        "fix    no sync can help: write a new file, sync it, and rename it over the old one",
        "found  1 finding; all 12 feasible crash states checked, model ext4",
        f"state  {tmp_path / '0' / 'state'}",
        "again  again crash:",
    ]
    assert {path.name: path.read_bytes() for path in (tmp_path / "0" / "state").iterdir()} == {"cfg.json": b""}


def test_a_careful_save_passes(here: Crashes) -> None:
    here.check(careful, "cfg.json", SAVED, start=START, check=accepts)
    with bounded():
        for state in here(careful, "cfg.json", SAVED, start=START):
            assert accepts(state)


def test_what_was_returned_and_printed_is_known_in_each_state(here: Crashes) -> None:
    def work() -> dict[str, int]:
        print("begun")
        careful("cfg.json", SAVED)
        print("saved", end="")
        return SAVED

    def check(state: State) -> None:
        assert state.done.printed in ("", "begun\n", "begun\nsaved")
        if state.done.returned:
            assert state.done.value == SAVED
            assert state.done.lines == ["begun"]
            assert load(state / "cfg.json") == SAVED
        else:
            with pytest.raises(ValueError, match="had not returned"):
                state.done.value  # noqa: B018

    here.check(work, start=START, check=check)
    with pytest.raises(CrashFound, match="although `careless` had returned"):
        here.check(
            careless, "cfg.json", SAVED, start=START, check=lambda state: state.done.returned is False or accepts(state)
        )


def test_a_result_that_cannot_be_copied_is_missing_with_the_reason(here: Crashes) -> None:
    def work() -> Callable[[], None]:
        careful("cfg.json", SAVED)
        return lambda: None

    def check(state: State) -> None:
        if state.done.returned:
            with pytest.raises(ValueError, match=r"cannot be copied to the check: .*lambda"):
                state.done.value  # noqa: B018

    here.check(work, start=START, check=check)


def test_a_loop_ends_the_test_with_the_same_finding(here: Crashes) -> None:
    seen: list[str] = []

    def whole_test() -> None:
        for state in here(careless, "cfg.json", SAVED, start=START):
            seen.append((state / "cfg.json").read_text())
            assert Path("cfg.json").read_text() == seen[-1]
        assert "" not in seen

    folder = Path.cwd()
    with pytest.raises(CrashFound) as raised, bounded():
        whole_test()
    assert str(raised.value).splitlines()[0] == f"{EMPTIED} writes it"
    assert seen == [""]  # this process has seen the smallest failing state, and nothing else
    assert Path.cwd() == folder


def test_states_in_a_list_a_helper_and_after_a_break_are_one_state_each(here: Crashes) -> None:
    def first() -> State:
        return next(iter(list(here(careless, "cfg.json", SAVED, start=START))))

    def broken() -> State:
        for state in here(careless, "cfg.json", SAVED, start=START):
            if state.exists():
                break
        return state

    for chosen in (first, broken):
        with pytest.raises(CrashFound, match="can be empty"), bounded():
            assert accepts(chosen())


def test_a_loop_outside_of_a_test_is_refused(here: Crashes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary.here, "depth", 0)
    with pytest.raises(CrashcheckError, match="crashes-loop"):
        next(here(careless, "cfg.json", SAVED))


def test_the_state_of_a_token_is_seen_in_this_process(here: Crashes, tmp_path: Path) -> None:
    tokens: list[str] = []
    settings = Settings(kept=lambda: tmp_path, again=lambda token: tokens.append(token) or "", jobs=1)
    with pytest.raises(CrashFound):
        Crashes(lambda: settings).check(careless, "cfg.json", SAVED, start=START, check=accepts)
    met, seen = [], []
    (tmp_path / "again").mkdir()
    only = Crashes(lambda: Settings(token=tokens[0], kept=lambda: tmp_path / "again", met=lambda: met.append(1)))
    only.check(
        careless, "cfg.json", SAVED, start=START, check=lambda state: seen.append((state / "cfg.json").read_text())
    )
    assert (met, seen) == ([1], [""])
    only.check(careful, "cfg.json", SAVED, start=START, check=lambda state: seen.append("of another call"))
    assert (met, seen) == ([1], [""])


def test_a_check_that_remembers_paths_or_leaves_files_open_sees_each_state(here: Crashes) -> None:
    kept: list[IO[bytes]] = []

    @functools.cache
    def cached(path: Path) -> object:
        kept.append(path.open("rb"))
        return load(path)

    with pytest.raises(CrashFound, match="can be empty"):
        here.check(
            careless, "cfg.json", SAVED, start=START, check=lambda state: cached(state / "cfg.json") in ({}, SAVED)
        )
    for file in kept:
        file.close()


def test_a_check_that_hangs_or_dies_fails_its_state(here: Crashes) -> None:
    def check(act: Callable[[], object], state: State) -> None:
        if not (state / "cfg.json").read_bytes():
            act()

    hangs = functools.partial(check, lambda: time.sleep(60))
    with pytest.raises(CrashFound, match=r"which makes the check hang\n  \| the check timed out"):
        here.check(careless, "cfg.json", SAVED, start=START, check=hangs, timeout_s=0.5)
    dies = functools.partial(check, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(CrashFound, match=r"which kills the check\n  \| the check was killed by SIGKILL"):
        here.check(careless, "cfg.json", SAVED, start=START, check=dies)


def test_coroutine_functions_are_run_and_checked(here: Crashes) -> None:
    async def save() -> None:
        await asyncio.sleep(0)
        careless("cfg.json", SAVED)

    async def check(state: State) -> bool:
        await asyncio.sleep(0)
        return accepts(state)

    with pytest.raises(CrashFound, match="can be empty"):
        here.check(save, start=START, check=check)


@pytest.mark.parametrize("in_python", [True, False])
def test_what_traces_a_test_in_python_does_not_follow_the_search(in_python: bool, here: Crashes) -> None:
    """What is no function of Python stays, as coverage's: it could not be set again in functions that have begun."""
    followed: set[str] = set()

    def tracer(frame: FrameType, event: str, arg: object) -> None:
        followed.add(Path(frame.f_code.co_filename).name)

    before, mine = sys.gettrace(), tracer if in_python else partial(tracer)
    sys.settrace(mine)
    try:
        here.check(careful, "cfg.json", SAVED, start=START, check=accepts)
        still = sys.gettrace()
    finally:
        sys.settrace(before)
    assert still is mine
    assert "crashes.py" in followed
    assert bool(followed & {"pipeline.py", "in_child.py"}) is not in_python


def test_a_test_that_is_a_coroutine_continues_with_each_state(here: Crashes) -> None:
    async def check(state: State) -> bool:
        return await asyncio.to_thread(accepts, state)

    async def looped(save: Callable[..., None]) -> None:
        await asyncio.to_thread(len, "")  # its thread is not in the copies
        for state in here(save, "cfg.json", SAVED, start=START):
            await asyncio.sleep(0.001)
            assert await check(state)

    async def checked() -> None:
        here.check(careless, "cfg.json", SAVED, start=START, check=check)

    with bounded():
        asyncio.run(looped(careful))
    for whole_test in (partial(looped, careless), checked):
        with pytest.raises(CrashFound) as raised, bounded():
            asyncio.run(whole_test())
        assert str(raised.value).splitlines()[0] == f"{EMPTIED} writes it"


def test_what_a_child_of_the_function_writes_is_recorded(here: Crashes) -> None:
    with pytest.raises(CrashFound, match=r"`cfg.json` can be empty after a crash"):
        here.check(
            subprocess.run,
            ["sh", "-c", "echo 1 > cfg.json"],
            check=lambda state: (state / "cfg.json").read_text() in ("7", "1\n"),
            start={"cfg.json": "7"},
        )


def test_what_the_function_raises_is_raised_with_its_place(here: Crashes) -> None:
    def work() -> None:
        careless("cfg.json", SAVED)
        raise KeyError("a")

    with pytest.raises(KeyError) as raised:
        here.check(work, check=accepts)
    (note,) = raised.value.__notes__
    assert note.splitlines()[0] == "raised by work in a child of the test's process:"
    assert note.splitlines()[-2:] == ['    raise KeyError("a")', "KeyError: 'a'"]


def numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: os._exit(3), "the function did not return: its process exited with status 3. [crashes-function]"),
        (lambda: os.kill(os.getpid(), 9), "its process was killed by signal 9 (Killed). [crashes-function]"),
        (numbers, "numbers returned a generator, of which nothing has run. [crashes-function]"),
        (len, "len raised an exception"),
        (functools.partial(sum, [1]), "sum changed no name, size or byte [nothing-persistent]"),
    ],
)
def test_a_function_that_does_not_write_and_return_is_refused(
    here: Crashes, function: Callable[[], object], words: str
) -> None:
    with pytest.raises((CrashcheckError, TypeError)) as raised:
        here.check(function, check=accepts)
    assert words in str(raised.value) or isinstance(raised.value, TypeError)


def test_start_is_files_or_a_folder_inside_the_functions_own(here: Crashes, tmp_path: Path) -> None:
    (tmp_path / "there" / "sub").mkdir(parents=True)
    (tmp_path / "there" / "sub" / "cfg.json").write_text("{}")
    for start in ({"sub/cfg.json": b"{}"}, tmp_path / "there"):
        here.check(careful, "cfg.json", SAVED, start=start, check=lambda state: load(state / "sub" / "cfg.json") == {})
    for wrong in ({"../up": ""}, {"/etc/x": ""}, tmp_path / "missing", 7):
        with pytest.raises(CrashcheckError, match="crashes-start"):
            here.check(careful, "cfg.json", SAVED, start=wrong, check=accepts)  # type: ignore[arg-type]


def test_a_check_that_rejects_what_nothing_harmed_is_an_error_of_the_test(here: Crashes) -> None:
    with pytest.raises(
        CrashcheckError, match=r"the check returned False \[check-rejects-first\]\n  Before careful does"
    ):
        here.check(careful, "cfg.json", SAVED, start=START, check=lambda state: state.done.returned)
    with pytest.raises(CrashcheckError, match=r"\[check-rejects-final\]\n  After careful has returned"):
        here.check(careful, "cfg.json", SAVED, start=START, check=lambda state: load(state / "cfg.json") == {})


def five_files() -> None:
    for number in range(5):
        Path(f"{number}").write_text("x")


def test_a_check_that_accepts_anything_and_states_that_were_left_are_remarked() -> None:
    remarks: list[str] = []

    def crashes(states: int) -> Crashes:
        return Crashes(lambda: Settings(states=states, remark=remarks.append, jobs=1))

    crashes(2_000).check(careful, "cfg.json", SAVED, start=START, check=lambda state: True)
    assert remarks.pop().startswith("the check also passes on the files filled with zeros")
    crashes(100).check(five_files, check=lambda state: all(path.stat().st_size < 2 for path in state.iterdir()))
    remark = remarks.pop()
    found = re.match(r"No findings; ([0-9]+) of 4,032 feasible crash states checked", remark)
    assert found is not None, remark
    assert int(found[1]) >= 100
    with pytest.raises(CrashcheckError, match="crashes-no-verdict"):
        crashes(1).check(five_files, check=lambda state: True)


def test_work_in_a_thread_of_asyncio_has_the_line_that_awaits_it(here: Crashes) -> None:
    async def save() -> None:
        Path("new").write_text("{}")
        await asyncio.to_thread(os.replace, "new", "cfg.json")

    renames = r"save` \(tests/testing/test_crashes.py:[0-9]+\) renames `new` to `cfg.json` before its data"
    with pytest.raises(CrashFound, match=renames):
        here.check(save, start={"cfg.json": "{}"}, check=lambda state: load(state / "cfg.json") == {})


def test_a_folder_without_its_file_cannot_be_made_after_it(here: Crashes) -> None:
    def work() -> None:
        Path("db").mkdir()
        Path("db/meta").write_text("1")

    with pytest.raises(CrashFound, match="a crash between the new directory `db`") as raised:
        here.check(work, check=lambda state: not (state / "db").exists() or (state / "db/meta").exists())
    (fix,) = (line for line in str(raised.value).splitlines() if line.startswith("fix "))
    assert fix == (
        "fix    no sync can help: let recovery accept a crash between the two, or make both below another name and "
        "rename that"
    )


def test_the_seconds_end_a_search_of_slow_checks_which_is_remarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remarks: list[str] = []
    checked, now = tmp_path / "checked", time.monotonic()
    checked.touch()

    def clock() -> float:
        """Only checks take time: a twentieth of a second each, on any machine."""
        return now + 0.05 * checked.stat().st_size

    def slow(state: State) -> bool:
        with checked.open("a") as file:
            file.write(".")
        return all(path.read_text() in ("", "x", "\0") for path in state.iterdir())

    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", clock)
        patched.setattr(Meter.__init__, "__defaults__", (clock,))
        Crashes(lambda: Settings(seconds=3.0, remark=remarks.append, jobs=1)).check(five_files, check=slow)
    found = re.match(r"No findings; ([0-9]+) of 4,032 feasible crash states checked", remarks[0])
    assert found is not None, remarks
    assert 0 < int(found[1]) < 100
    with pytest.raises(CrashcheckError, match=r"time.*\[crashes-no-verdict\]\n  Where a budget ended too early, raise"):
        Crashes(lambda: Settings(seconds=1e-9, jobs=1)).check(five_files, check=slow)


def test_what_follows_a_search_gets_as_long_as_what_precedes_it_and_a_tenth_at_most() -> None:
    config = config_of("ext4", 10.0, seconds=60.0)
    assert [to_search(config, read_s).budget.seconds for read_s in (0.0, 2.0, 20.0, 70.0)] == [60.0, 56.0, 34.0, 0.0]
    assert to_search(config_of("ext4", 10.0), 70.0).budget.seconds is None


def test_a_search_in_which_most_states_fail_ends_soon_after_its_newest_finding(here: Crashes) -> None:
    def work() -> None:
        for number in range(6):
            Path(f"{number}").write_text("x" * 10)

    with pytest.raises(CrashFound) as raised:
        here.check(
            work, check=lambda state: state.done.returned or not any(path.read_bytes() for path in state.iterdir())
        )
    found = re.search(r"finding; ([0-9,]+) of ([0-9,.×^]+) feasible", str(raised.value))
    assert found is not None, raised.value
    assert int(found[1]) < 1_000


def test_a_model_that_there_is_not_and_no_states_are_refused() -> None:
    for settings in (Settings(model="px86"), Settings(states=0), Settings(seconds=0), Settings(seconds=float("nan"))):
        crashes = Crashes(lambda settings=settings: settings)  # type: ignore[misc]
        with pytest.raises(CrashcheckError, match="bad-option"):
            crashes.check(careful, "cfg.json", SAVED, check=accepts)


def test_a_thread_is_refused(here: Crashes) -> None:
    errors: list[BaseException] = []

    def use() -> None:
        try:
            here.check(careful, "cfg.json", SAVED, check=accepts)
        except CrashcheckError as error:
            errors.append(error)

    thread = threading.Thread(target=use, name="mine")
    thread.start()
    thread.join()
    assert str(errors[0]).startswith("crashes was used in the thread 'mine'. [crashes-thread]\n")


def test_unittest_ends_its_tests_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(CrashTestCase):
        def test_check(self) -> None:
            self.crashes.check(careless, "cfg.json", SAVED, start=START, check=accepts)

        def test_loop(self) -> None:
            for state in self.crashes(careless, "cfg.json", SAVED, start=START):
                assert accepts(state)

        def test_parts(self) -> None:
            for state in self.crashes(careless, "cfg.json", SAVED, start=START):
                with self.subTest("part"):
                    assert accepts(state)

        def test_passes(self) -> None:
            for state in self.crashes(careful, "cfg.json", SAVED, start=START):
                with self.subTest("part"):
                    assert accepts(state)

    result = unittest.defaultTestLoader.loadTestsFromTestCase(Careless).run(unittest.TestResult())
    found = [(test.id().rpartition(".")[2], text.splitlines()) for test, text in result.failures]
    assert [name for name, lines in found if any(EMPTIED in line for line in lines)] == [
        *("test_check", "test_loop", "test_parts"),
    ]
    (again,) = [line for line in found[0][1] if line.startswith("again")]
    token = again.split()[1].removeprefix("CRASH_STATE=")
    assert again.split()[2:5] == ["python", "-m", "unittest"]
    monkeypatch.setenv("CRASH_STATE", token)
    (error,) = Careless("test_check").run(unittest.TestResult()).errors  # type: ignore[union-attr]
    assert error[1].splitlines()[-1].startswith("json.decoder.JSONDecodeError")
