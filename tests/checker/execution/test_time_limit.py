"""Which runs are ended before their time is over, and which are waited for. No limit here is met in a test's life."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.results import Outcome
from support.checked_worlds import World, put_flag_first, words

HOURS_S = 100_000.0
DEADLOCK = "import threading; own = threading.Lock(); own.acquire(); own.acquire()"
WOKEN_BY_A_TIMER = """
import signal, threading
own = threading.Lock()
own.acquire()
signal.signal(signal.SIGALRM, lambda *_: own.release())
signal.setitimer(signal.ITIMER_REAL, 0.4)
own.acquire()
"""
WOKEN_BY_A_THREAD = """
import threading, time
own = threading.Lock()
own.acquire()
threading.Thread(target=lambda: (time.sleep(0.4), own.release())).start()
own.acquire()
"""
WOKEN_BY_A_CHILD = """
import multiprocessing, os, time
shared = multiprocessing.get_context("fork").Semaphore(0)
if not os.fork():
    time.sleep(0.4)
    shared.release()
    os._exit(0)
shared.acquire()
"""
WOKEN_BY_AN_ORPHAN = """
import multiprocessing, os, time
shared = multiprocessing.get_context("fork").Semaphore(0)
child = os.fork()
if not child:
    if not os.fork():
        os.setsid()
        time.sleep(0.4)
        shared.release()
    os._exit(0)
os.waitpid(child, 0)
shared.acquire()
"""


def world(folder: Path, program: str) -> World:
    script = folder / "check.py"
    script.write_text(program)
    check = words([sys.executable, "-S", str(script)])
    return World(folder / "world", check, lambda t: put_flag_first(t, 1), limits=Limits(timeout_s=HOURS_S))


def outcome(folder: Path, program: str, busy_s: float | None = None) -> Outcome:
    here = world(folder, program)
    with here.executor() as executor:
        executor.set_timeout(TimeLimit(HOURS_S / 2, busy_s))
        return executor.run(here.space.full(0), patient=busy_s is None).outcome


def test_a_run_all_of_whose_threads_wait_for_each_other_is_not_waited_for(tmp_path: Path) -> None:
    assert outcome(tmp_path, DEADLOCK) is Outcome.TIMEOUT


@pytest.mark.parametrize("program", [WOKEN_BY_A_TIMER, WOKEN_BY_A_THREAD, WOKEN_BY_A_CHILD, WOKEN_BY_AN_ORPHAN])
def test_a_run_that_waits_for_a_lock_which_something_will_release_is_waited_for(program: str, tmp_path: Path) -> None:
    assert outcome(tmp_path, program) is Outcome.PASS


def test_a_short_limit_bounds_the_processor_time_of_each_thread(tmp_path: Path) -> None:
    assert outcome(tmp_path, "while True: pass", 0.1) is Outcome.TIMEOUT


def test_a_run_that_sleeps_is_not_busy(tmp_path: Path) -> None:
    assert outcome(tmp_path, "import time; time.sleep(0.5)", 0.3) is Outcome.PASS
