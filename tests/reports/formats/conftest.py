from __future__ import annotations

import pytest

from crashcheck.checker.results import RunResult


@pytest.fixture
def result(request: pytest.FixtureRequest) -> RunResult:
    """A run, or what a function makes when a test needs it.

    The 90 MB of `hostile` would be in each worker from the collection on, and be copied whenever one forks.
    """
    made = request.param
    if callable(made):
        made = made()
    assert isinstance(made, RunResult)
    return made
