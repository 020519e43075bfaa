"""Where a test ends: a run of a test with one crash state ends there with its verdict, in a process of its own.

`for state in crashes(...)` forks within the loop. In such a copy of the test's process the test continues with one
state, and how it ends is the verdict on it. Nothing of what runs tests may continue there, so whatever calls a test
function does that within `bounded`. Every project that uses pytest loads this module: it imports little.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

    from crashcheck.testing.failure import CrashFound

# Ends of a test that are no failures: of pytest, unittest and Hypothesis, by name, as these may not be installed.
_NO_FAILURES = ("Skipped", "SkipTest", "UnsatisfiedAssumption")


class Boundary:
    """What is known of the test that runs in this process."""

    def __init__(self) -> None:
        self.depth = 0  # of `bounded`; 0: a loop over states has nowhere to end
        self.is_run = False  # this process is a run of the test with one state
        self.failure: CrashFound | None = None  # the loop was given the state of this: how the test ends shows it
        self.folder = ""  # the working folder before a loop changed it; empty: none has


here = Boundary()


@contextmanager
def bounded() -> Iterator[None]:
    """Call a test function, or what calls it, within this. Raises CrashFound, and what the test raises."""
    own = os.getpid()
    here.depth += 1
    ended: BaseException | None = None
    try:
        yield
    except BaseException as error:
        ended = error
    here.depth -= 1
    if here.is_run and os.getpid() != own:
        end_run(ended)
    if here.folder:
        os.chdir(here.folder)
        here.folder = ""
    failure, here.failure = here.failure, None
    if failure is None or type(ended).__name__ in _NO_FAILURES:
        if ended is not None:
            raise ended
        return
    if ended is None:  # it does not fail here; then what it printed in its own process is shown
        raise failure
    failure.caused_by(ended)
    raise failure.with_traceback(ended.__traceback__) from None


def go_to(folder: Path) -> None:
    """Change the working folder until the test ends."""
    here.folder = here.folder or os.getcwd()
    os.chdir(folder)


def running_loop() -> Any:
    """The event loop of asyncio that the test runs in; None if there is none."""
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None


def resume(loop: Any) -> None:
    """In a copy of the test's process: let its event loop continue, with descriptors and threads of its own."""
    if loop is None:
        return
    import asyncio.selector_events

    asyncio._set_running_loop(loop)
    if isinstance(loop, asyncio.selector_events.BaseSelectorEventLoop):
        shared: Any = loop
        watched = list(shared._selector.get_map().values())
        shared._selector = type(shared._selector)()
        for key in watched:
            shared._selector.register(key.fileobj, key.events, key.data)
        shared._close_self_pipe()
        shared._make_self_pipe()
        shared._default_executor = None


def end_run(error: BaseException | None) -> NoReturn:
    """In a run of the test with one state: the test has ended."""
    passed = type(error).__name__ in ("NoneType", *_NO_FAILURES)
    if error is not None and not passed:
        from crashcheck.testing.failure import shown

        print(shown(error))
    sys.stdout.flush()
    os._exit(0 if passed else 1)
