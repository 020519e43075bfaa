"""What every test may rely on: the commands on PATH and no setting of the caller's that changes a run."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.examples import BuiltExamples

ROOT = Path(__file__).resolve().parent.parent

# Tests start hundreds of Pythons, and each worker imports all tests, whose assertions pytest rewrites. Each module is
# compiled once for all of them, whatever the caller's setting.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Zig keeps a lock while it builds the C++ library: with a cache for all checkouts, they would wait for one another.
os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(ROOT / "build" / "zig-cache"))

# How long an example takes is the machine's affair.
settings.register_profile("crashcheck", deadline=None, derandomize=True)
settings.load_profile("crashcheck")


# A shell lets what it starts in the background ignore Ctrl-C, and programs under test would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not look for garbage among the tests, while they are collected and again and again while they run.

    That takes an eighth of the collection's time, which each worker spends, and a tenth of the tests'.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


COMMANDS = {
    "crashcheck": ("crashcheck.cli", "main"),
    "crashcheck-cc": ("crashcheck.cli.cc", "main_c"),
    "crashcheck-c++": ("crashcheck.cli.cc", "main_cxx"),
}


@pytest.hookimpl(optionalhook=True)  # there without pytest-xdist too
def pytest_xdist_auto_num_workers() -> int:
    """A few more processes than cores: many tests wait for programs that hang or for processes that end."""
    cores = len(os.sched_getaffinity(0))
    return cores + (cores + 1) // 2


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `crashcheck`, `crashcheck-cc` and `crashcheck-c++` of this checkout, installed or not."""
    folder = tmp_path_factory.mktemp("bin")
    for name, (module, function) in COMMANDS.items():
        code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from {module} import {function} as main; "
        code += "sys.exit(main())"
        script = folder / name
        # A shell starts it: the interpreter's path may hold spaces, which a #! line cannot.
        script.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n', encoding="utf-8"
        )
        script.chmod(0o755)
    return folder


@pytest.fixture
def built_example(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> Iterator[BuiltExamples]:
    """`built_example(name)`: a copy of the example with its programs, for this test alone until it ends."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    # A folder whose name needs quoting.
    built = BuiltExamples(shared / "Beispiele für tests", commands)
    yield built
    built.close()


@pytest.fixture
def environment(commands: Path) -> dict[str, str]:
    """The environment for a command under test: `commands` first on PATH, none of the caller's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CRASHCHECK_", "MAKE"))}
    return {**kept, "PATH": f"{commands}{os.pathsep}{kept.get('PATH', os.defpath)}"}


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("CRASHCHECK_") and not name.startswith("CRASHCHECK_REAL_"):  # where sources are
            monkeypatch.delenv(name)
