"""Which strategy chooses the crash states, and what it is given: behaviours, likely invariants, changed code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from crashcheck.analyzer.behaviours import Behaviours, StaticSite
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.invariants import Inferred, infer
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.change.code import ChangedCode
from crashcheck.checker.budget import Budget
from crashcheck.checker.strategies import Ranked, Strategy, strategy
from crashcheck.checker.strategies.plan import Infer
from crashcheck.config import Config
from crashcheck.interruption import KeepOn, always
from crashcheck.source import SourceTree, repository_of
from crashcheck.stages.recording import RecordedRun

_EARLY = 1_000  # states of a long trace that are tested while its groups are being ranked, at most


class InferOnce:
    """Infers the likely invariants of a graph when they are first asked for, and then returns the same ones.

    So the search for crash states and the trial of fixes share them.
    """

    def __init__(self, run: RecordedRun) -> None:
        self._reads = run.reads
        self._known: tuple[PersistenceGraph, Inferred] | None = None

    def __call__(self, found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        if self._known is None or self._known[0] is not found.graph:
            self._known = found.graph, infer(found, facts, reads=self._reads, keep_on=keep_on)
        return self._known[1]


def strategy_of(
    config: Config,
    run: RecordedRun,
    changed: ChangedCode | None = None,
    inferring: Infer | None = None,
    early: int = 0,
    on_ranking: Callable[[], None] = always,
) -> Strategy:
    """The configured strategy. `changed`: code whose states ranked tries first; `early`, `on_ranking`: as Ranked has
    them."""
    match config.strategy.name:
        case "bounded":
            return strategy("bounded", deviations=config.strategy.deviations)
        case "ranked":
            return ranked(run, changed, inferring, library_of(config, run.facts), early, on_ranking)
        case "pathfinder":
            return strategy("pathfinder", facts=run.facts)
        case "witcher":
            return strategy("witcher", facts=run.facts, infer=inferring or InferOnce(run))
        case name:
            return strategy(name)


def library_of(config: Config, facts: ProgramFacts) -> Callable[[StaticSite], bool] | None:
    """Which sites are a library's: in files outside the project's repository.

    None if [strategy] libraries = "equal", or no source that crashcheck-cc compiled is inside: then the project is the
    code that is outside.
    """
    root = repository_of(config.folder).root
    if config.strategy.libraries == "equal":
        return None
    inside = cache(lambda file: not SourceTree(root).relative(config.folder / file).startswith("/"))
    if not any(inside(unit.source) for unit in facts.units.values()):
        return None
    return lambda site: bool(site.file) and not inside(site.file)


def ranked(
    run: RecordedRun,
    changed: ChangedCode | None = None,
    inferring: Infer | None = None,
    library: Callable[[StaticSite], bool] | None = None,
    early: int = 0,
    on_ranking: Callable[[], None] = always,
) -> Ranked:
    """The ranked strategy."""
    holds_site = changed.holds_site if changed is not None else None
    return Ranked(run.facts, inferring or InferOnce(run), holds_site, library, early, on_ranking)


def early_states(budget: Budget) -> int:
    """How many states are tested before the groups are ranked, at most: few, if the budget counts states."""
    return _EARLY if budget.states is None else min(_EARLY, budget.states // 8)
