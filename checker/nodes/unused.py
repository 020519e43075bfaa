"""What a search was given and did not use: bounds that no run drew on, and calls that should fail and never came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from crashcheck.checker.nodes.dependence import BOUND_OF
from crashcheck.checker.nodes.runs import NodeRun

_WHAT = {  # what a failure of each bound needs, by the names of BOUND_OF
    "crashes": "no node that may crash was running",
    "loss": "no datagram was on its way",
    "duplicate": "no datagram was on its way",
    "cut": "there is one node only",
    "reset": "no connection was open",
    "faults": "no node was running whose calls may fail",
}


class Used:
    """What the runs of a search have drawn on."""

    def __init__(self) -> None:
        self._drawn: set[str] = set()  # bounds
        self._possible: set[str] = set()  # bounds on which something could have drawn that did not happen
        self._met: set[int] = set()  # faults
        self._runs = 0

    def take(self, run: NodeRun) -> None:
        """Take note of a run."""
        self._runs += 1
        self._met |= run.met_faults
        self._drawn.update(BOUND_OF[action.kind] for action in run.chosen if action.kind in BOUND_OF)
        for enabled in run.enabled:
            self._possible.update(BOUND_OF[action.kind] for action in enabled if action.kind in BOUND_OF)

    def warnings(self, failures: Mapping[str, int], faults: Sequence[str]) -> Iterator[str]:
        """What was not used, a sentence each. `failures`: how many there may be, by bound; `faults`: what should fail
        how, by number; empty: which call that is, the search chooses."""
        for bound, most in failures.items():
            if most and bound not in self._drawn:
                why = "the search ended before" if bound in self._possible else _WHAT[bound]
                yield f"no run (of {self._runs}) drew on [bounds] {bound} = {most}: {why}"
        for number, text in enumerate(faults):
            if text and number not in self._met:
                yield f"in no run (of {self._runs}) did a call meet [[faults]] {number + 1}: {text}"
