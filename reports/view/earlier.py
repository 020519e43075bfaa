"""Earlier findings that a run did not meet: those of the base of a change, and those of the last run (--failing)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from crashcheck.checker.results import Earlier, FindingKind, RunResult
from crashcheck.reports.view.numbers import human
from crashcheck.reports.view.sentences import ref_name, searched
from crashcheck.reports.view.text import line

COMMIT_CHARS = 7
SHOWN_MAX = 20


def fixed(result: RunResult) -> tuple[tuple[str, Earlier], ...]:
    """Those whose crash passes now, or cannot happen any more; each with the version that it failed in."""
    return tuple((where, one) for where, one in _earlier(result) if one.fate == "fixed")


def not_seen(result: RunResult) -> tuple[tuple[str, Earlier], ...]:
    """The others: nobody knows whether they are fixed."""
    return tuple((where, one) for where, one in _earlier(result) if one.fate != "fixed")


def _earlier(result: RunResult) -> Iterator[tuple[str, Earlier]]:
    """Each once: a bug of the base may have failed in the last run, too."""
    of_base = result.base.earlier if result.base is not None else ()
    for one in of_base:
        assert result.base is not None
        yield ref_name(result.base.ref), one
    known = {one.id for one in of_base}
    for one in result.again:
        if one.id not in known:
            yield one.commit[:COMMIT_CHARS] or "the last run", one


def now(one: Earlier) -> str:
    """What the crash of a fixed finding does now."""
    return "passes now" if one.executed else "cannot happen any more"


def failed(where: str, one: Earlier) -> str:
    """What failed in an earlier version: a crash, or an order of actions."""
    what = "order of actions" if one.kind is FindingKind.ACTIONS else "crash"
    return f"the {what} that failed in {where}"


def compared(result: RunResult) -> tuple[str, ...]:
    """What the comparison with the base and the last run showed, in sentences; none where there was none."""
    if not searched(result):
        return ()
    head, edits = _base(result)
    cured, gone = fixed(result)[:SHOWN_MAX], not_seen(result)[:SHOWN_MAX]
    return (
        *head,
        *(f"Fixed, {failed(at, one)} {now(one)}: {line(one.message, 300)}" for at, one in cured),
        *(f"Not seen again since {at}, and not compared: {line(one.message, 300)}" for at, one in gone),
        *edits,
    )


def _base(result: RunResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How many findings the change introduced, and what it does to the rules."""
    base = result.base
    if base is None:
        return (), ()
    where = f"{ref_name(base.ref)} ({base.commit[:10]})"
    edits = tuple(f"This change edits the rules: {line(edit, 300)}" for edit in base.edits)
    if base.note:
        return (f"Not compared with {where}: {line(base.note, 300)}.",), edits
    kinds = Counter(finding.compared for finding in result.all_findings)
    amounts = [f"{human(kinds['introduced'])} introduced", f"{human(kinds['existing'])} existing"]
    amounts += [f"{human(kinds['not-compared'])} new here, not compared"] if kinds["not-compared"] else []
    cured = sum(one.fate == "fixed" for one in base.earlier)
    return (f"Compared with {where}: {', '.join(amounts)}, {human(cured)} fixed.",), edits
