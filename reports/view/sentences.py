"""The sentences of a report: the headline, what a kind, a model, an outcome or a stop reason means, and the caveats."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Sequence

from crashcheck.checker import policy
from crashcheck.checker.results import (
    COUNTED,
    CRASH_STATE,
    CRASHED,
    HALF_STORE,
    NODE_RUN,
    Discovery,
    Finding,
    FindingKind,
    Note,
    Outcome,
    RunResult,
    StateCounts,
    StopReason,
    Unexercised,
    Verdict,
)
from crashcheck.config.nodes import NO_CRASH_MODEL
from crashcheck.models import family_of
from crashcheck.reports.view.numbers import human, percent, seconds_text
from crashcheck.reports.view.text import line

KIND_TITLE = {
    FindingKind.ORDERING: "Ordering",
    FindingKind.ATOMICITY: "Atomicity",
    FindingKind.UNPERSISTED: "Not durable",
    FindingKind.RECOVERY_FAILURE: "Recovery failure",
    FindingKind.REOPEN: "Clean reopen",
    FindingKind.ACTIONS: "Order of actions",
}
KIND_SENTENCE = {
    FindingKind.ORDERING: "Nothing guarantees that the first store is durable before the second, "
    "so a crash can keep the second without the first.",
    FindingKind.ATOMICITY: "These updates belong together, but a crash can keep only some of them: "
    "nothing makes them one atomic step.",
    FindingKind.UNPERSISTED: "A flush, fence or sync is missing: the operation was acknowledged before its update was "
    "durable, so a crash can lose it.",
    FindingKind.RECOVERY_FAILURE: "The model allows this crash image, and recovery fails on it.",
    FindingKind.REOPEN: "Without any crash, closing the files and opening them again loses or damages what an "
    "operation left.",
    FindingKind.ACTIONS: "The nodes do not cope with this order of messages, time-outs and failures.",
}
_HEADLINE_CHARS = 400
_REASONS = 3  # why states were not decided by explored runs
_UNREACHED_CHARS = 1000  # of functions that were not run
_STOPPED = {
    StopReason.BUDGET_STATES: "The state budget ended the search",
    StopReason.BUDGET_SECONDS: "The time budget ended the search",
    StopReason.INTERRUPTED: "The run was interrupted",
    StopReason.DISK_FULL: "The disk was full",
    StopReason.WORKER_LOST: "A process that runs checks was ended by the system or by somebody",
    StopReason.REOPEN: "A clean reopen of the driver changes its output, so crash states cannot be judged",
}
_NOTHING_CHECKED = {
    StopReason.BUDGET_STATES: "the state budget ended first",
    StopReason.BUDGET_SECONDS: "the time budget ended first",
    StopReason.INTERRUPTED: "the run was interrupted",
    StopReason.DISK_FULL: "the disk was full",
    StopReason.WORKER_LOST: "a process that runs checks was ended by the system or by somebody",
    StopReason.REOPEN: "a clean reopen of the driver changes its output",
}
FATE = {"durable": "durable", "persisted": "survived", "lost": "lost", "unreached": "not reached", "": ""}
FATE_CLAUSE = {
    "durable": "it is durable",
    "persisted": "it survives the crash",
    "lost": "it is lost",
    "unreached": "it is not reached",
}


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 finding`, `2 findings`, `10^77 states`."""
    return f"{human(count)} {noun if count == 1 else many or noun + 's'}"


def granule_word(model: str) -> str:
    """What the model takes as the unit that persists in order."""
    family = family_of(model)
    return "sector" if family.by_sync and ("tear=512" in model or "tear=4096" in model) else family.granule


def granule_name(model: str) -> str:
    """As `granule_word`, where nothing around it shows what kind of line is meant."""
    word = granule_word(model)
    return "cache line" if word == "line" else word


def model_sentence(model: str) -> str:
    """What a finding's model assumes, in a sentence."""
    if model == NO_CRASH_MODEL:
        return "A crash loses nothing that was written."
    if family_of(model).by_sync:
        torn = " A page can be torn into sectors." if granule_word(model) == "sector" else ""
        return "The kernel can write any dirty page to disk at any time; only a sync guarantees it." + torn
    half = " Half of a misaligned store can survive: nobody documents this." if HALF_STORE in model.split() else ""
    if model.startswith("eadr"):
        return "Caches survive power loss (eADR): stores persist in the order in which they became visible." + half
    if model.startswith("px86"):
        return "Caches are volatile (ADR): lines can be written back in any order until a flush and a fence." + half
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
        return "the check timed out"
    if verdict.outcome is Outcome.LIMIT:
        return "the check hit a limit (memory, file size or output)"
    if verdict.outcome is Outcome.FAIL and verdict.exit_code == 0:
        return "the output differs from that of a run without a crash"
    if verdict.outcome is Outcome.FAIL and verdict.exit_code is None:
        return "the files are in no state that the run allows"
    if verdict.exit_code is not None:
        return f"the check exited with status {verdict.exit_code}"
    return f"the check ended as {verdict.outcome.value}"


def feasible(result: RunResult) -> str:
    """The number of feasible states with what is known of its exactness: `412`, `about 10^77`, `at least 56`."""
    states = result.states
    if COUNTED in states.feasible_note:
        return "an unknown number of"
    at_least = of_nodes(result) or CRASHED in states.feasible_note
    known = "" if states.feasible_exact else "at least " if at_least else "about "
    return known + human(states.feasible)


def unit(result: RunResult) -> str:
    """What the search checked, as a noun: "crash state"."""
    return line(result.states.unit, 40)


def of_crashes(result: RunResult) -> bool:
    """Whether the search checked crash states, each on an image of the files."""
    return result.states.unit == CRASH_STATE


def of_nodes(result: RunResult) -> bool:
    """Whether the search checked runs of several nodes."""
    return result.states.unit == NODE_RUN


def _once(result: RunResult) -> str:
    return " (identical images once)" if of_crashes(result) else ""


def searched(result: RunResult) -> bool:
    """Whether there was anything to search: not where a change holds documents only."""
    return result.base is None or not result.base.documents


def covered(result: RunResult) -> int:
    """States of which the verdict is known: executed, equal to one that was, or decided by explored or earlier runs."""
    states = result.states
    return states.executed + states.pruned + states.explored + states.reused


def reused(states: StateCounts) -> str:
    """Where the verdicts on reused states are from."""
    since = f" of {line(states.reused_from, 40)}" if states.reused_from else ""
    return f"decided by the run{since} that this one continues"


def standing(finding: Finding) -> str:
    """What sets a finding apart from one that simply counts: `suppressed`, `known`, `in the diff`, or nothing."""
    if finding.suppressed:
        return "suppressed"
    if not finding.new:
        return "known"
    return _COMPARED.get(finding.compared, "in the diff" if finding.in_diff else "")


_COMPARED = {"introduced": "introduced", "existing": "in the base", "not-compared": "not compared"}


def why_not(finding: Finding) -> str:
    """Why a finding does not count; "" if it does."""
    if finding.suppressed:
        return f"suppressed: {line(finding.suppressed)}"
    if not finding.new:
        return "in the baseline"
    return "the base of the change has it, too" if finding.compared == "existing" else ""


def ref_name(ref: str) -> str:
    """A base as people name it: `main`."""
    return line(re.sub(r"^refs/(remotes/origin|remotes|heads)/", "", ref), 120)


def headline(result: RunResult) -> str:
    """The first line of a report: the first bug that counts, and how many more; without one, what was checked.

    Where failures that count are not proved, it names what would settle them.
    """
    unproved = sum(map(policy.counts, result.uncertain))
    first = next(filter(policy.counts, result.findings), None)
    if first is None:
        what = counted(result)
        if policy.unproved(result):
            return f"No verdict: {what}.{_settling(result)}".rstrip(".")
        if policy.checked_nothing(result):
            return what
        if policy.unseen(result):
            return _unseen(result)
        too_little = policy.barely_searched(result)
        return f"No verdict: {searched_share(result)}; {what[0].lower()}{what[1:]}" if too_little else what
    more = [plural(count, what) for count, what in _more(len(result.findings) - 1, unproved) if count]
    message = first.message  # cut at its end, as a JSON report cuts it: one read back has the same headline
    bug = line(message if len(message) <= _HEADLINE_CHARS else message[: _HEADLINE_CHARS - 1] + "…", _HEADLINE_CHARS)
    return bug + (f", and {' and '.join(more)}" if more else "")


def searched_share(result: RunResult) -> str:
    """`searched 4 %`: of the site signatures, where a budget ended the search; or that it ended after a few states."""
    if policy.few_states(result):
        return "the budget ended the search at once"
    return f"searched {percent(result.states.signatures_tested, result.states.signatures)}"


def _settling(result: RunResult) -> str:
    """What would settle the uncertain findings, as a sentence; empty if that is not known."""
    ways = dict.fromkeys(line(one.settled_by, 200) for one in result.uncertain if one.settled_by)
    return f" To settle it: {'; or '.join(ways)}." if ways else ""


def _unseen(result: RunResult) -> str:
    """What was not followed, and how to get a verdict."""
    found = result.trace.not_followed
    shown = [line(one.what, 80) for one in found[:_REASONS]]
    shown += [f"{len(found) - _REASONS} more"] * (len(found) > _REASONS)
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    ways = "; ".join(dict.fromkeys(line(one.way_out, 200) for one in found[:_REASONS]))
    what = "the nodes were not fully under control" if of_nodes(result) else "not all changes were recorded"
    return f"No verdict: {what}: {listed}; {checked(result)}. To get a verdict: {ways}"


def _more(findings: int, unproved: int) -> tuple[tuple[int, str], ...]:
    return (findings, "more finding"), (unproved, "uncertain finding")


def counted(result: RunResult) -> str:
    """How many findings there are in how many states, so that the number cannot be read as a proof."""
    if result.base is not None and result.base.documents:
        return f"Nothing to check: the change since {ref_name(result.base.ref)} holds documents only"
    if policy.checked_nothing(result):
        why = _NOTHING_CHECKED.get(result.stop_reason, f"the strategy {line(result.strategy, 60)} plans none")
        uncounted = not result.states.feasible and not result.states.feasible_exact
        which = "no" if uncounted else f"none of {feasible(result)}"
        states = unit(result) if uncounted else f"{unit(result)}s"
        return f"No verdict: {which} feasible {states} was checked, because {why}"
    failing = sum(finding.states for finding in result.uncertain)
    amounts = (
        _amount("finding", result.findings),
        _amount(
            "uncertain finding",
            result.uncertain,
            plural(failing, "failing run" if of_nodes(result) else "failing state"),
        ),
    )
    what = " and ".join(filter(None, amounts))
    if not what and policy.unseen(result):
        return _unseen(result)
    return f"{what or 'No findings'}; {checked(result)}"


def _amount(noun: str, found: Sequence[Finding], *more: str) -> str:
    """ "2 findings (1 new, 1 known)"; empty if there are none."""
    if not found:
        return ""
    kinds = Counter(standing(finding) for finding in found)
    fresh = sum(map(policy.counts, found))
    others = ("known", "suppressed", "in the base", "not compared")
    fresh -= sum(one.compared == "not-compared" and policy.counts(one) for one in found)  # listed by its own word
    fresh_word = "introduced" if any(finding.compared for finding in found) else "new"
    parts = [f"{human(fresh)} {fresh_word}"] if any(kinds[word] for word in others) or kinds["introduced"] else []
    if kinds["in the diff"]:
        parts = [" of which ".join([*parts, f"{human(kinds['in the diff'])} in the diff"])]
    parts += [f"{human(kinds[word])} {word}" for word in others if kinds[word]]
    parts += more
    return plural(len(found), noun) + (f" ({', '.join(parts)})" if parts else "")


def states_covered(result: RunResult) -> str:
    """`412 of 10^77`."""
    return f"{human(covered(result))} of {feasible(result)}"


def checked(result: RunResult) -> str:
    """`412 of 10^77 feasible crash states checked`, or that all were."""
    if is_complete(result):
        known = covered(result)
        return (
            f"all {human(known)} feasible {unit(result)}s checked"
            if known != 1
            else f"the only feasible {unit(result)} checked"
        )
    return f"{states_covered(result)} feasible {unit(result)}{'s' * (feasible(result) != '1')} checked"


def is_complete(result: RunResult) -> bool:
    return result.states.feasible_exact and covered(result) == result.states.feasible


def scope_sentence(result: RunResult) -> str:
    """Under which model and strategy the headline holds, and why the search ended."""
    if of_nodes(result):
        how = f"Orders of messages, time-outs and failures were run with the strategy {line(result.strategy, 60)}"
        whole = result.stop_reason is StopReason.EXHAUSTED and is_complete(result)
        return f"{how}, within the bounds of the configuration." if whole else f"{how}. {stop_sentence(result)}"
    how = (
        f"One recorded run was explored under the model {line(result.model, 60)} "
        f"with the strategy {line(result.strategy, 60)}"
    )
    if result.stop_reason is StopReason.EXHAUSTED and is_complete(result):
        once = "; identical images were checked once" if of_crashes(result) else ""
        return f"{how}{once}."  # that all were checked is in the headline, or beside it
    return f"{how}. {stop_sentence(result)}"


def stop_sentence(result: RunResult) -> str:
    """Why the search ended, and whether states remain."""
    if not searched(result):
        return "Nothing was searched."
    if result.stop_reason is not StopReason.EXHAUSTED:
        return f"{_STOPPED[result.stop_reason]}; the remaining states were not checked."
    if is_complete(result):
        return f"Every feasible {unit(result)} was checked{_once(result)}."
    planned = plural(covered(result), unit(result))
    verb = "was" if covered(result) == 1 else "were"
    return f"All {planned} that the strategy {line(result.strategy, 60)} plans {verb} checked{_once(result)}."


def caveats(result: RunResult) -> tuple[str, ...]:
    """What the headline leaves out, the most severe first."""
    found: list[str] = []
    states, trace = result.states, result.trace
    if trace.truncated:
        found.append(f"The trace ends early: {line(trace.truncated, 200)}.")
    found += [line(sentence, _UNREACHED_CHARS) for sentence in result.unreached]
    if result.not_instrumented:
        parts = plural(len(result.not_instrumented), "part of the program is", "parts of the program are")
        found.append(f"{parts} not instrumented: stores made there were not recorded.")
    if trace.unexplained_bytes:
        changed = trace.explained_bytes + trace.unexplained_bytes
        found.append(
            f"{human(trace.unexplained_bytes)} of {human(changed)} changed bytes "
            f"({percent(trace.unexplained_bytes, changed)}) are not accounted for by the trace: "
            "crash states never vary them."
        )
    if trace.unmodelled_calls:
        calls = plural(len(trace.unmodelled_calls), "call on watched files is", "calls on watched files are")
        found.append(f"{calls} not modelled.")
    if result.uncertain:
        listed = plural(len(result.uncertain), "uncertain finding is", "uncertain findings are")
        found.append(f"{listed} listed separately: the check fails, but the cause is not proved.{_settling(result)}")
    if states.flaky:
        found.append(f"{plural(states.flaky, 'state')} failed once and passed when run again.")
    if states.put_off:
        postponed = plural(states.put_off, "state was", "states were")
        found.append(
            f"{postponed} postponed to the end and not checked: the check hangs on similar ones, or everything fails "
            "at that moment."
        )
    if states.not_explored and covered(result) < states.feasible:
        left = human(sum(each.left for each in states.not_explored))
        found.append(f"Explored runs did not decide {left} states: {not_explored(states)}.")
    if not states.feasible_exact:
        note = line(states.feasible_note, 200).rstrip(".")
        found.append(f"The number of feasible states is a bound{': ' + note if note else ''}.")
    return tuple(found)


def not_explored(states: StateCounts) -> str:
    """Why explored runs did not decide states, and how many for each reason."""
    shown = [f"{line(each.why, 200)} ({human(each.left)})" for each in states.not_explored[:_REASONS]]
    more = len(states.not_explored) - len(shown)
    return "; ".join([*shown, f"and {plural(more, 'more reason')}"] if more else shown)


def case(finding: Finding) -> str:
    """What was searched for a finding, as a noun."""
    return NODE_RUN if finding.kind is FindingKind.ACTIONS else "state"


def found(finding: Finding, discovery: Discovery) -> str:
    """When the search found it."""
    return f"found after {plural(discovery.states, case(finding))}, {seconds_text(discovery.seconds)}"


def same_cause(finding: Finding) -> str:
    """How many failing states share this cause."""
    amount = plural(max(finding.states, 1), f"failing {case(finding)}")
    has = "may have" if finding.uncertain else "has" if finding.states <= 1 else "have"
    return f"{amount} {has} this cause"


_WASTE = {
    "clean-flush": "flushed lines were redundant: clean",
    "repeated-flush": "flushed lines were redundant: flushed since the last store to them, with no fence between",
    "empty-fence": "fences were redundant: nothing to wait for",
    "empty-sync": "syncs were redundant: nothing to write back",
}


def note(value: Note) -> str:
    """ "table.c:12 in commit: 3 of 7 fences were redundant: nothing to wait for"."""
    here = value.location
    place = f"{here.file}:{here.line}" + (f" in {here.function}" if here.function else "")
    return f"{place}: {human(value.count)} of {human(value.total)} {_WASTE[value.waste]}"


def unexercised(found: Sequence[Unexercised]) -> str:
    """What the functions have in common that could update the files and did not; "" if there are none."""
    if not found:
        return ""
    return (
        f"{plural(len(found), 'function')} that can write these data structures wrote nothing to the files in this run"
    )


def names(values: Sequence[str], limit: int, each: int = 120) -> tuple[str, ...]:
    """At most `limit` shown names, and a last entry that counts the rest."""
    shown = tuple(line(value, each) for value in values[:limit])
    rest = len(values) - limit
    return (*shown, f"… and {rest:,} more") if rest > 0 else shown
