"""Lets work that a Python program gives to threads have the lines that gave it.

A thread of a pool that runs a function of C or of a library (`os.replace`, all that aiofiles does) has no line of the
program, and neither has a thread whose target is a function of C. So each piece of work is called through functions
that look like those which submitted it, or started the thread: of the same file, name and line. The recorder, which
reads the thread's frames, sees these as callers. A target in Python may do what others give it later: it has its own.

A recorded Python finds this module's folder in its PYTHONPATH (preload.c), and so loads it before the program, under
the name that Python has for such a module (docs.python.org/3/library/site.html). The folder is taken out again, and a
module of that name which the user has is loaded. It works with Python 3.8 and loads no further module.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType
    from typing import Any

# What takes work for threads, by module: its name there, and how many arguments are before the function to be called.
_SUBMITS = {"concurrent.futures.thread": ("ThreadPoolExecutor.submit", 1), "anyio.to_thread": ("run_sync", 0)}
_THREADS = "threading"
_DEEPEST = 16  # functions that submitted; the outer ones are mostly Python's own
_MOST_KNOWN = 1000  # stacks

_known: dict[tuple[tuple[CodeType, int], ...], Any] = {}


def note_submitters() -> None:
    """From now on, of the pools of `concurrent.futures`, which asyncio has, too, of those of anyio, and of threads."""
    for name in (*_SUBMITS, _THREADS):
        if name in sys.modules:
            _note_submitters_of(sys.modules[name])
    sys.meta_path.insert(0, _WhenLoaded())


class _WhenLoaded:
    """Lets the others find a module, and changes it when it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _SUBMITS and name != _THREADS:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, found), None)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _note_submitters_of(module)

            loader.exec_module = exec_module
        return spec


def _note_submitters_of(module: ModuleType) -> None:
    if module.__name__ == _THREADS:
        _note_starters_of(module)
        return
    names, at = _SUBMITS[module.__name__]
    *holders, name = names.split(".")
    holder: Any = getattr(module, holders[0]) if holders else module
    submit = getattr(holder, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= at:
            return submit(*args, **kwargs)
        return submit(*args[:at], _like_callers(sys._getframe(1)), *args[at:], **kwargs)

    _name_like(noted, submit)
    setattr(holder, name, noted)


def _note_starters_of(threading: Any) -> None:
    start = threading.Thread.start

    def noted(thread: Any) -> None:
        target: Any = getattr(thread, "_target", None)
        while type(target).__name__ == "partial":
            target = target.func
        if target is not None and not hasattr(target, "__code__"):
            thread._args = (thread._target, *thread._args)
            thread._target = _like_callers(sys._getframe(1))
        start(thread)

    _name_like(noted, start)
    threading.Thread.start = noted


def _name_like(function: Any, other: Any) -> None:
    function.__name__, function.__qualname__, function.__doc__ = other.__name__, other.__qualname__, other.__doc__


def _like_callers(frame: FrameType | None) -> Any:
    """A function that calls what it is given, through functions that look like a frame and its callers."""
    stack: list[tuple[CodeType, int]] = []
    while frame is not None and len(stack) < _DEEPEST:
        stack.append((frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
    key = tuple(stack)
    calls: Any = _known.get(key)
    if calls is None:
        for code, line in stack:
            calls = _calls_what_it_is_given() if calls is None else _calls(calls)
            _make_like(calls, code, line)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = calls
    return calls


# Each in one line: where such a function begins is the line of its call.
def _calls_what_it_is_given() -> Any:
    return lambda function, /, *args, **kwargs: function(*args, **kwargs)


def _calls(inner: Callable[..., Any]) -> Any:
    return lambda *args, **kwargs: inner(*args, **kwargs)


def _make_like(function: Any, code: CodeType, line: int) -> None:
    whole_name = {"co_qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}
    function.__code__ = function.__code__.replace(
        co_filename=code.co_filename, co_name=code.co_name, co_firstlineno=line, **whole_name
    )


def _give_back() -> None:
    """The environment, the path and the module `sitecustomize` as the user has them."""
    ours, _, theirs = os.environ["PYTHONPATH"].partition(os.pathsep)
    if theirs:
        os.environ["PYTHONPATH"] = theirs
    else:
        del os.environ["PYTHONPATH"]
    sys.path.remove(ours)
    this = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError:
        sys.modules[__name__] = this


if __name__ == "sitecustomize":  # loaded by Python, of which the recorder asked it
    _give_back()
    note_submitters()
