"""The sentences of a report: what a kind, a model, an outcome, a stop reason mean, and what a count does not say."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence

from crashcheck.checker.results import Finding, Kind, Note, Outcome, RunResult, StopReason, Unexercised, Verdict
from crashcheck.reports.view.numbers import human, percent
from crashcheck.reports.view.text import line

KIND_TITLE = {
    Kind.ORDERING: "Ordering",
    Kind.ATOMICITY: "Atomicity",
    Kind.UNPERSISTED: "Unpersisted",
    Kind.RECOVERY_FAILURE: "Recovery failure",
}
KIND_SENTENCE = {
    Kind.ORDERING: "Nothing makes the earlier update durable before the later one, "
    "so a crash may keep the later one alone.",
    Kind.ATOMICITY: "These updates belong together, but a crash may keep a part of them: "
    "no flush or fence between them makes them one step.",
    Kind.UNPERSISTED: "The work was acknowledged before its update was durable, so a crash may take it back.",
    Kind.RECOVERY_FAILURE: "This crash image may occur, and recovery itself fails on it.",
}
STOP = {
    StopReason.EXHAUSTED: "Every state of the strategy was checked, or is equal to one that was.",
    StopReason.BUDGET_STATES: "The budget of states was used up; states that remain were not looked at.",
    StopReason.BUDGET_SECONDS: "The time budget was used up; states that remain were not looked at.",
    StopReason.INTERRUPTED: "The run was interrupted; states that remain were not looked at.",
    StopReason.DISK_FULL: "The disk was full; states that remain were not looked at.",
}
FATE = {"durable": "durable", "persisted": "survived", "lost": "lost", "unreached": "not reached", "": ""}
TOLD = {
    "durable": "it is durable",
    "persisted": "it reaches the medium",
    "lost": "it is lost",
    "unreached": "it is not reached",
}


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 finding`, `2 findings`, `10^77 states`."""
    return f"{human(count)} {noun if count == 1 else many or noun + 's'}"


def granule_word(model: str) -> str:
    """What the model takes as the unit that persists in order."""
    if model.startswith("page-cache"):
        return "sector" if "tear=512" in model or "tear=4096" in model else "page"
    return "line"


def model_sentence(model: str) -> str:
    """What a finding's model assumes, in a sentence."""
    if model.startswith("page-cache"):
        torn = "" if granule_word(model) == "page" else " A page may be torn into sectors."
        return "The kernel may write any dirty page back at any time, and only a sync makes it certain." + torn
    if model.startswith("eadr"):
        return "Caches survive power loss (eADR): stores persist in the order in which they became visible."
    if model.startswith("px86"):
        return "Caches are volatile (ADR): lines may be written back in any order until a flush and a fence."
    return ""


def outcome(verdict: Verdict) -> str:
    """How the check ended: `the check exited with status 3`."""
    if verdict.outcome is Outcome.SIGNAL and verdict.signal is not None:
        try:
            name = signal.Signals(verdict.signal).name
        except ValueError:
            name = f"signal {verdict.signal}"
        return f"the check was killed by {name}"
    if verdict.outcome is Outcome.TIMEOUT:
        return "the check did not end in time"
    if verdict.outcome is Outcome.LIMIT:
        return "the check hit a limit (memory, file size or output)"
    if verdict.outcome is Outcome.FAIL and verdict.exit_code == 0:
        return "the output is not that of a run in which nothing crashed"
    if verdict.exit_code is not None:
        return f"the check exited with status {verdict.exit_code}"
    return f"the check ended as {verdict.outcome.value}"


def feasible(result: RunResult) -> str:
    """The number of feasible states with what is known of its exactness: `412`, `at most 10^77`."""
    states = result.states
    return human(states.feasible) if states.feasible_exact else f"about {human(states.feasible)}"


def covered(result: RunResult) -> int:
    """States of which the verdict is known: executed, or equal to an executed one."""
    return result.states.executed + result.states.pruned


def standing(finding: Finding) -> str:
    """What sets a finding apart from one that simply counts: `suppressed`, `known`, `in the diff`, or nothing."""
    if finding.suppressed:
        return "suppressed"
    return "known" if not finding.new else "in the diff" if finding.in_diff else ""


def headline(result: RunResult) -> str:
    """The first line of every report; it says what was looked at, so that it cannot be read as a proof."""
    count = len(result.findings)
    what = plural(count, "finding") if count else "No findings"
    counted = Counter(standing(finding) for finding in result.findings)
    if count and set(counted) != {""}:
        fresh = sum(finding.new and not finding.suppressed for finding in result.findings)
        told = [f"{human(fresh)} new"] if counted["known"] or counted["suppressed"] else []
        if counted["in the diff"]:
            told = [" of which ".join([*told, f"{human(counted['in the diff'])} in the diff"])]
        told += [f"{human(counted[word])} {word}" for word in ("known", "suppressed") if counted[word]]
        what += f" ({', '.join(told)})"
    known = covered(result)
    if not count and result.states.feasible_exact and known == result.states.feasible:
        scope = f"all {human(known)} feasible crash states" if known != 1 else "the only feasible crash state"
    else:
        noun = "state" if result.states.feasible == 1 else "states"
        scope = f"{human(known)} of {feasible(result)} feasible crash {noun}"
    return f"{what} in {scope}"


def scope_sentence(result: RunResult) -> str:
    """Under which model and strategy the headline holds."""
    return (
        f"Explored from one recorded run, under the model {line(result.model, 60)}, "
        f"with the strategy {line(result.strategy, 60)}. {STOP[result.stop_reason]}"
    )


def caveats(result: RunResult) -> tuple[str, ...]:
    """What keeps the headline from being the whole truth, the gravest first."""
    found: list[str] = []
    states, trace = result.states, result.trace
    if trace.truncated:
        found.append(f"The trace ends early: {line(trace.truncated, 200)}.")
    if result.not_instrumented:
        found.append(
            f"{plural(len(result.not_instrumented), 'part of the program', 'parts of the program')} "
            "not instrumented: stores made there were not seen."
        )
    if trace.unexplained_bytes:
        changed = trace.explained_bytes + trace.unexplained_bytes
        found.append(
            f"{human(trace.unexplained_bytes)} of {human(changed)} changed bytes "
            f"({percent(trace.unexplained_bytes, changed)}) were written by something that was not recorded; "
            "they were never varied."
        )
    if trace.unmodelled_calls:
        found.append(f"{plural(len(trace.unmodelled_calls), 'call')} on watched files not modelled.")
    if result.uncertain:
        found.append(f"{plural(len(result.uncertain), 'uncertain finding')} listed apart: fails, but not proved.")
    if states.flaky:
        found.append(f"{plural(states.flaky, 'state')} failed once and passed when run again.")
    if states.put_off:
        which = "looks like one" if states.put_off == 1 else "look like ones"
        found.append(
            f"{plural(states.put_off, 'state')} that {which} on which the check hangs had been put off to the end of "
            "the search, which did not get there: not checked."
        )
    if not states.feasible_exact:
        note = line(states.feasible_note, 200).rstrip(".")
        found.append(f"The number of feasible states is a bound{': ' + note if note else ''}.")
    return tuple(found)


def explained(finding: Finding) -> str:
    """How many failing states share this cause."""
    if finding.states <= 1:
        return "1 failing state has this cause"
    return f"{human(finding.states)} failing states have this cause"


_WASTE = {
    "clean-flush": "lines flushed were clean",
    "repeated-flush": "lines flushed had been flushed since the last store to them, with no fence between",
    "empty-fence": "fences had nothing to wait for",
    "empty-sync": "syncs had nothing to write back",
}


def note(value: Note) -> str:
    """ "table.c:12 in commit: 3 of 7 fences had nothing to wait for"."""
    here = value.location
    place = f"{here.file}:{here.line}" + (f" in {here.function}" if here.function else "")
    return f"{place}: {human(value.count)} of {human(value.total)} {_WASTE[value.waste]}"


def unexercised(found: Sequence[Unexercised]) -> str:
    """What functions that look as if they update the files, and did not, have in common; "" if there are none."""
    if not found:
        return ""
    store = "stores" if len(found) == 1 else "store"
    return f"{plural(len(found), 'function')} {store} to types that the files hold, but updated no file in this run"


def names(values: Sequence[str], limit: int, each: int = 120) -> tuple[str, ...]:
    """At most `limit` shown names, and a last entry that counts the rest."""
    shown = tuple(line(value, each) for value in values[:limit])
    rest = len(values) - limit
    return (*shown, f"… and {rest:,} more") if rest > 0 else shown
