"""Whether the order of actions in which one version of some nodes fails makes another version fail as well.

The choices of one run are taken on the other version's programs as far as they may come, as `replay --steer` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from crashcheck.checker.nodes.describe import facts_of
from crashcheck.checker.nodes.search import one_bug
from crashcheck.checker.results import Earlier, Finding, RunResult
from crashcheck.checker.token import OrderToken, parse
from crashcheck.config import Config
from crashcheck.stages.node_replays import steer_by


class Followed(NamedTuple):
    """How the other version ended in the order of a finding. `fails`: None if that is not known, because of `why`."""

    fails: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class NodeVersion:
    """One version of some nodes, whose programs are built, and what its search found. `name`: "the base"."""

    config: Config
    result: RunResult
    name: str


def followed(finding: Finding, here: NodeVersion, there: NodeVersion, folder: Path) -> Followed:
    """Take the order of a finding of one version on the other one. `folder`: where the runs are made.

    Raises CrashcheckError where a version cannot be run.
    """
    token, mine, theirs = parse(finding.replay), here.config.nodes, there.config.nodes
    if not isinstance(token, OrderToken) or mine is None or theirs is None or mine.names() != theirs.names():
        return Followed(None, f"{there.name} has other nodes")
    known = steer_by(here.config, token, folder)
    if known.run.uncontrolled:
        return Followed(None, f"its run is not fully under control: {known.run.uncontrolled[0]}")
    if known.run.failure is None or known.departs:
        return Followed(None, f"its run is not repeated on {here.name}")
    # What is possible is what the finding needs: other bounds are no other program.
    config, facts = replace(there.config, nodes=replace(theirs, bounds=mine.bounds)), facts_of(known.run)
    other = steer_by(config, token, folder, facts, to_end=True)
    if other.run.uncontrolled:
        return Followed(None, f"its run on {there.name} is not fully under control: {other.run.uncontrolled[0]}")
    if one_bug(known.run, other.run):
        again = steer_by(config, token, folder, facts, to_end=True)
        if one_bug(other.run, again.run):  # what fails once only is no evidence
            return Followed(True)
        return Followed(None, f"it fails only sometimes on {there.name}")
    if other.departs:
        return Followed(None, f"{there.name} departs from its order {other.departs}")
    if other.run.failure is not None:
        return Followed(None, f"in its order {other.describer.failure(other.run.failure)} on {there.name}")
    return Followed(False)


def searched_all(version: NodeVersion, other: NodeVersion) -> bool:
    """Whether a version's search made all runs in which the other one can fail: within the same bounds."""
    mine, theirs = version.config.nodes, other.config.nodes
    if mine is None or theirs is None or not version.result.states.feasible_exact:
        return False
    limits = [(nodes.bounds, nodes.clock_error_ns, nodes.faults, nodes.check) for nodes in (mine, theirs)]
    crashes = [
        [(name, node.crash, node.ends, node.status, node.threads) for name, node in nodes.each()]
        for nodes in (mine, theirs)
    ]
    same_model = version.config.model == other.config.model
    return same_model and limits[0] == limits[1] and crashes[0] == crashes[1]


def compared_orders(
    findings: Sequence[tuple[int, Finding]], here: NodeVersion, base: NodeVersion, folder: Path
) -> Iterator[tuple[int, Finding]]:
    """Findings that are not known to be the base's, each marked as it is on the base's programs."""
    for number, one in findings:
        found = followed(one, here, base, folder)
        if found.fails is not None:
            yield number, replace(one, compared="existing" if found.fails else "introduced")
        elif searched_all(base, here):
            yield number, replace(one, compared="introduced")  # it would have found it
        else:
            yield number, replace(one, note="; ".join(filter(None, (one.note, found.why))))


def not_met(
    findings: Iterable[Finding], here: NodeVersion, base: NodeVersion, folder: Path, most: int
) -> Iterator[Earlier]:
    """Findings of the base that are fixed here, or were not seen again. `most`: of which that is found out by a run.

    If an order cannot be taken here, it is no proof that all runs were made as long as one of them fails: that may be
    the same bug.
    """
    none_fails = not here.result.findings and not here.result.uncertain and searched_all(here, base)
    for number, one in enumerate(findings):
        found = followed(one, base, here, folder) if number < most else Followed(None)
        if found.fails:
            continue  # it is there still; this search did not come to it
        fixed = found.fails is False or none_fails
        ran = int(found.fails is False)
        yield Earlier(one.id, one.kind, one.message, "fixed" if fixed else "not-seen", ran)
