"""The plugin of pytest. It is loaded in every project that has crashcheck installed: nothing is imported until used."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from crashcheck.testing.boundary import bounded

if TYPE_CHECKING:
    from crashcheck.testing.crashes import Crashes, Settings

_NAME = "crashcheck-crashes"  # of the plugin that belongs to one test run


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("crashcheck", "crash states of the files that tests write (fixture crashes)")
    group.addoption("--crash-model", metavar="MODEL", default="ext4", help="the file system (default: ext4)")
    group.addoption(
        "--crash-states", metavar="N", type=int, default=None, help="check at most N crash states of a call"
    )
    group.addoption(
        "--crash-seconds",
        metavar="S",
        type=float,
        default=None,
        help="check the states of a call for at most S seconds",
    )
    group.addoption("--crash-state", metavar="TOKEN", default="", help="only the crash state that a failure named")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CrashPlugin(config), _NAME)


@pytest.fixture(scope="session")
def crashes(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    """Checks what a crash can leave of the files that a function writes; see crashcheck's docs/testing.md."""
    from crashcheck.testing.crashes import Crashes

    plugin = pytestconfig.pluginmanager.get_plugin(_NAME)
    assert isinstance(plugin, CrashPlugin)
    return Crashes(lambda: plugin.settings(tmp_path_factory))


class CrashPlugin:
    """One test run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._item: pytest.Item | None = None  # the test that runs
        self._met: bool | None = None  # whether it met the state of --crash-state; None: it has not looked for it
        self._remarks: dict[str, None] = {}

    def settings(self, folders: pytest.TempPathFactory) -> Settings:
        """What the test that runs asks for."""
        from crashcheck.testing.crashes import SECONDS, STATES, Settings

        options = self._config.option
        name = self._item.nodeid if self._item is not None else ""
        self._met = bool(self._met)
        return Settings(
            options.crash_model,
            STATES if options.crash_states is None else options.crash_states,
            SECONDS if options.crash_seconds is None else options.crash_seconds,
            options.crash_state,
            lambda: folders.mktemp("crash"),
            lambda token: f"pytest {shlex.quote(name)} --crash-state {token}",
            lambda text: self._remarks.setdefault(f"{name}: {text}"),
            self._meet,
            1 if "PYTEST_XDIST_WORKER" in os.environ else 0,
        )

    def _meet(self) -> None:
        self._met = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._item, self._met = item, None
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        inner = getattr(pyfuncitem.obj, "hypothesis", None)  # of @given: its engine continues after a failure
        if inner is not None and not getattr(inner.inner_test, "ends_here", False):
            inner.inner_test = _bounded(inner.inner_test)
        with bounded():
            result = yield
        if self._met is False and self._config.option.crash_state:
            from crashcheck.errors import CrashcheckError

            raise CrashcheckError(
                "token-other-trace",
                "No call of crashes in this test did what the token of --crash-state belongs to.",
                "The test or what it tests has changed since, or does not do the same each time: run it without.",
            )
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._remarks:
            terminalreporter.section("crash states")
            for remark in self._remarks:
                terminalreporter.write_line(remark)


def _bounded(test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        with bounded():
            return test(*args, **kwargs)

    run.ends_here = True  # type: ignore[attr-defined]
    return run
