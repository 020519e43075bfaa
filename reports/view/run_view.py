"""A run as a reader sees it: plain strings and numbers, chosen once, for every renderer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from crashcheck.checker import policy
from crashcheck.checker.results import (
    NOT_COMPARED,
    Discovery,
    Finding,
    Fix,
    Level,
    RunResult,
    StateCounts,
)
from crashcheck.config import FILE_NAME
from crashcheck.models import family_of
from crashcheck.reports.view import earlier, sentences
from crashcheck.reports.view.evidence import renderer_of
from crashcheck.reports.view.evidence.values import Context, EvidenceView
from crashcheck.reports.view.failing_behaviour import STEPS_MAX
from crashcheck.reports.view.group_rows import GroupView, group_views, summary
from crashcheck.reports.view.numbers import human, percent, seconds_text
from crashcheck.reports.view.places import PlaceView
from crashcheck.reports.view.source_lines import Sources
from crashcheck.reports.view.text import block, line, reason, valid
from crashcheck.source import spoken

STEPS_ALL_FINDINGS = 1000  # schedule steps shown in one report; keeps 100 findings under 1 MiB of HTML
STEPS_MIN = 8
PATCH_LINES = 24
NOTE_CHARS = 1000  # a note may hold several sentences of findings
UNEXERCISED_MAX = 200
_MOST_PHASES = 20
_CRASH_STATE = (
    "A crash state is a set of updates that the model lets survive a crash at one point of this recorded run; other "
    "runs are not covered."
)
_NODE_RUN = (
    "A run is one execution of all nodes from their start, with one order of messages, time-outs and failures, within "
    "the stated bounds."
)

Status = Literal["clean", "partial", "findings"]


@dataclass(frozen=True, slots=True)
class FactView:
    """One labelled figure; `note` is how to read it."""

    label: str
    value: str
    note: str = ""
    tone: str = ""  # "bad" | "warn" | "": how a renderer may colour it


@dataclass(frozen=True, slots=True)
class FixView:
    """The suggested fix of a finding. `cost` and `patch` are empty where there is nothing to add."""

    kind: str
    words: str
    verified: str
    cost: str  # "24 flushes and 24 fences more in the run"
    patch: tuple[str, ...]  # "buggy.c:42 + fence();", one for each line put in
    diff: tuple[str, ...]  # the same as the rows of a diff, beside the line that they are put at, where that is known
    no_edit: str
    recipe: tuple[str, ...]  # "in Python:", then lines of code


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding as it is shown: its head, and its evidence as the renderer of that kind shows it."""

    number: int
    id: str
    file: str  # of its place
    level: Level
    suppressed: str  # why the user accepts it, or ""
    standing: str  # "suppressed", "known", "introduced", "in the base", "not compared", "in the diff", or ""
    why_not: str  # why it does not count, or ""
    kind: str
    kind_title: str
    model: str
    message: str
    outcome: str
    breaks: str  # why the check fails, by what it printed, or how it ended
    output: tuple[str, ...]
    output_cut: str  # a sentence if the output is not whole, or ""
    replay: str
    states: str
    found: str  # "found after 12 states, 0.8 s", or ""
    notes: tuple[str, ...]
    uncertain: str
    fix: FixView | None
    evidence: EvidenceView

    @property
    def place(self) -> PlaceView:
        """Its own place."""
        return self.evidence.places[0]

    @property
    def ending(self) -> str:
        """ "Crash before the fence at hash.c:44: the check exited with status 3."."""
        return f"{self.evidence.occasion.capitalize()} {self.evidence.summary}: {self.outcome}."


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole report."""

    status: Status
    headline: str  # the first bug, or what was checked
    counted: str  # findings and states; equal to the headline where there is no bug
    no_verdict: str  # where no finding counts: "uncertain", "nothing-checked", "not-recorded", "barely-searched"
    covered: str  # "412 of 10^77"
    unit: str  # what was checked: "crash state"
    footnote: str  # what that is
    scope: str
    base: tuple[str, ...]  # what the comparison with the base of the change, and with the last run, showed
    caveats: tuple[str, ...]
    counts: tuple[FactView, ...]  # empty where nothing was searched: the change holds documents only
    trace: tuple[FactView, ...]  # empty there, too
    run: tuple[FactView, ...]
    findings: tuple[FindingView, ...]
    uncertain: tuple[FindingView, ...]
    not_instrumented: tuple[FactView, ...]
    unmodelled: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    unexercised: tuple[FactView, ...]  # functions, where each stores first, and at how many places
    unexercised_summary: str
    groups: tuple[GroupView, ...]
    groups_summary: str
    version: str

    @property
    def all_findings(self) -> tuple[FindingView, ...]:
        """Those that are proved, then the uncertain ones."""
        return (*self.findings, *self.uncertain)


def build_view(result: RunResult, sources: Sources | None = None, config: str = "") -> RunView:
    """The view of a run; `sources` (see `source_lines.read_sources`) adds the lines around each place.

    `config`: the configuration as a command names it; by default that of the run's folder.
    """
    name = valid(config or os.path.basename(result.config_path))
    options = "" if name == FILE_NAME else f"-c {shlex.quote(line(name, 1000))} "
    shown = len(result.findings) + len(result.uncertain)
    context = Context(sources or {}, max(STEPS_MIN, min(STEPS_MAX, STEPS_ALL_FINDINGS // max(shown, 1))))
    discoveries = {each.finding: each for each in result.discoveries}
    views = [
        _finding(number, found, discoveries.get(found.id), context, options)
        for number, found in enumerate(result.all_findings, 1)
    ]
    caveats = sentences.caveats(result)
    whole = result.states.feasible_exact and sentences.covered(result) == result.states.feasible
    searched = sentences.searched(result)
    open_ = any(map(policy.counts, result.findings))
    status: Status = (
        "findings" if open_ else "partial" if result.findings else "clean" if whole and not caveats else "partial"
    )
    return RunView(
        status=status,
        headline=sentences.headline(result),
        counted=sentences.counted(result),
        no_verdict=_no_verdict(result),
        covered=sentences.states_covered(result),
        unit=sentences.unit(result),
        footnote=_CRASH_STATE if sentences.of_crashes(result) else _NODE_RUN if sentences.of_nodes(result) else "",
        scope=sentences.scope_sentence(result) if searched else "",
        base=earlier.compared(result),
        caveats=caveats,
        counts=_counts(result) if searched else (),
        trace=_trace(result) if searched and not sentences.of_nodes(result) else (),
        run=_run(result),
        findings=tuple(views[: len(result.findings)]),
        uncertain=tuple(views[len(result.findings) :]),
        not_instrumented=tuple(FactView(line(u.unit, 160), line(u.what, 200)) for u in result.not_instrumented[:200]),
        unmodelled=sentences.names(result.trace.unmodelled_calls, 100),
        warnings=sentences.names(result.warnings, 100, 400),
        notes=sentences.names(tuple(sentences.note(note) for note in result.notes), 200, 300),
        unexercised=tuple(
            FactView(
                line(one.function, 120), f"{line(one.file, 160)}:{one.line}", sentences.plural(one.stores, "store")
            )
            for one in result.unexercised[:UNEXERCISED_MAX]
        ),
        unexercised_summary=sentences.unexercised(result.unexercised),
        groups=group_views(result),
        groups_summary=summary(result),
        version=line(result.version, 40),
    )


def _no_verdict(result: RunResult) -> str:
    if any(map(policy.counts, result.findings)) or not policy.undecided(result):
        return ""
    if policy.checked_nothing(result):
        return "nothing-checked"
    if policy.unproved(result):
        return "uncertain"
    return "not-recorded" if policy.unseen(result) else "barely-searched"


def _signatures(states: StateCounts) -> FactView:
    share = percent(states.signatures_tested, states.signatures)
    of = f"{human(states.signatures_tested)} of {human(states.signatures)} site signatures of the plainest states"
    return FactView("site signatures", share, f"{of} tested when the budget ended")


def _counts(result: RunResult) -> tuple[FactView, ...]:
    states = result.states

    def note(words: str, of_runs: str = "") -> str:  # of crash images
        return words if sentences.of_crashes(result) else of_runs if sentences.of_nodes(result) else ""

    exact = "" if states.feasible_exact else line(states.feasible_note, 200) or "a bound, not a count"
    known = sentences.covered(result)
    share = percent(known, states.feasible) if states.feasible_exact else "unknown"
    by_runs = f"they pass: decided by {sentences.plural(states.explored_runs, 'explored run')}"
    explored = [FactView("explored", human(states.explored), by_runs)] * bool(states.explored)
    if states.reused:
        explored.append(FactView("reused", human(states.reused), sentences.reused(states)))
    if states.not_explored and not (
        states.feasible_exact and known == states.feasible
    ):  # else single runs decided them
        left = sum(each.left for each in states.not_explored)
        explored.append(FactView("not explored", human(left), sentences.not_explored(states)))
    counted = "unknown" if exact and not states.feasible else human(states.feasible)
    put_off = FactView(
        "postponed", human(states.put_off), "similar to a known hang, or where everything fails; not checked", "warn"
    )
    return (
        FactView("feasible", counted, exact or note("states that the model allows, counted exactly")),
        FactView(
            "executed", human(states.executed), note("images written and checked", "runs of different partial orders")
        ),
        FactView(
            "pruned",
            human(states.pruned),
            note("image identical to one already checked", "of a partial order already run"),
        ),
        *explored,
        FactView("covered", share, "executed, pruned, explored or reused, of the feasible ones"),
        *((_signatures(states),) if states.signatures else ()),
        *((put_off,) if states.put_off else ()),
        FactView(
            "failing",
            human(states.failing),
            note("the check did not accept the image"),
            "bad" if states.failing else "",
        ),
        FactView("flaky", human(states.flaky), "failed, then passed: never a finding", "warn" if states.flaky else ""),
        FactView(
            "uncertain",
            human(states.uncertain),
            "failing, but not proved",
            "warn" if states.uncertain else "",
        ),
    )


def _trace(result: RunResult) -> tuple[FactView, ...]:
    trace = result.trace
    changed = trace.explained_bytes + trace.unexplained_bytes
    compared = NOT_COMPARED not in trace.not_followed
    share = percent(trace.explained_bytes, changed) if changed else "no byte changed" if compared else "not compared"
    note = f"{human(trace.explained_bytes)} of {human(changed)} changed bytes" if changed else ""
    if family_of(result.model).names:
        kinds = f"{human(trace.stores)} writes, {human(trace.syncs)} syncs"
    else:
        kinds = (
            f"{human(trace.stores)} stores, {human(trace.flushes)} flushes, "
            f"{human(trace.fences)} fences, {human(trace.syncs)} syncs"
        )
    return (
        FactView("accounted for", share, note, "warn" if trace.unexplained_bytes else ""),
        FactView("events", human(trace.events), kinds),
        FactView("operations", human(trace.operations), "marked by the workload"),
        FactView("threads", human(trace.threads), f"in {sentences.plural(trace.processes, 'process', 'processes')}"),
        FactView("files", human(len(trace.files)), ", ".join(sentences.names(trace.files, 6, 80))),
        FactView(
            "trace",
            line(trace.path, 160),
            f"ends early: {line(trace.truncated, 200)}" if trace.truncated else "",
            "warn" if trace.truncated else "",
        ),
    )


def _run(result: RunResult) -> tuple[FactView, ...]:
    return (
        FactView("model", line(result.model, 80), sentences.model_sentence(result.model)),
        FactView("strategy", line(result.strategy, 80)),
        FactView("stopped", result.stop_reason.value, sentences.stop_sentence(result)),
        FactView(
            "time",
            seconds_text(result.seconds),
            "; ".join(filter(None, (", ".join(_phases(result)), ", ".join(_firsts(result))))),
        ),
        FactView("configuration", line(result.config_path, 200)),
    )


def _phases(result: RunResult) -> Iterator[str]:
    for each in result.phases[:_MOST_PHASES]:
        yield f"{line(each.name, 60)} {seconds_text(each.seconds)}"


def _firsts(result: RunResult) -> Iterator[str]:
    """When the search had its first verdict, and its first finding."""
    if result.first_state_s is not None:
        yield f"first state tested after {seconds_text(result.first_state_s)} of the search"
    if result.discoveries:
        yield f"first finding after {seconds_text(min(each.seconds for each in result.discoveries))}"


def _finding(number: int, finding: Finding, discovery: Discovery | None, context: Context, options: str) -> FindingView:
    shown = renderer_of(finding.evidence).view(finding, finding.evidence, context)
    verdict = finding.evidence.verdict
    outcome = line(finding.evidence.outcome, 200) or sentences.outcome(verdict)
    output, left_out = block(verdict.output)
    notes = [line(finding.note, NOTE_CHARS)] if finding.note else []
    if finding.suppressed:
        notes.append(f"Suppressed: {line(finding.suppressed)}")
    elif not finding.new:
        notes.append("Known: it is in the baseline.")
    if finding.in_diff:
        notes.append("The change touches it.")
    return FindingView(
        number=number,
        id=line(finding.id, 80),
        file=line(spoken(finding.location.file), 160),
        level=finding.level,
        suppressed=line(finding.suppressed),
        standing=sentences.standing(finding),
        why_not=sentences.why_not(finding),
        kind=finding.kind.value,
        kind_title=sentences.KIND_TITLE[finding.kind],
        model=line(finding.model, 60),
        message=line(finding.message, 400),
        outcome=outcome,
        breaks=finding.evidence.outcome or reason(output) or outcome,
        output=output,
        output_cut="cut: " + (f"{left_out:,} characters left out here" if left_out else "the check printed more")
        if left_out or verdict.output_truncated
        else "",
        replay=line(finding.replay, 2000)
        if " " in finding.replay.strip()  # commands of an earlier version
        else f"crashcheck replay {options}{shlex.quote(line(finding.replay, 2000))}",
        states=sentences.same_cause(finding),
        found=sentences.found(finding, discovery) if discovery is not None else "",
        notes=(*notes, *shown.notes),
        uncertain=line(finding.uncertain),
        fix=_fix(finding),
        evidence=shown,
    )


def _diff(finding: Finding, fix: Fix) -> tuple[str, ...]:
    """The edits as rows of a diff, each after a row that names its line."""
    known = {(place.file, place.line): place.text for place in finding.places if place.text}
    rows: list[str] = []
    for edit in fix.edits:
        put = [f"+{text}" for text in edit.text.split("\n")]
        indent = edit.text[: len(edit.text) - len(edit.text.lstrip())]
        there = known.get((edit.file, edit.line))
        beside = [f" {indent}{there}"] if there else []
        rows.append(f"@@ {edit.file}:{edit.line} @@")
        if edit.replaces:
            rows += [f"-{edit.replaces}", *put]
        else:
            rows += [*put, *beside] if edit.insert_before else [*beside, *put]
    return tuple(line(text, 200) for text in rows[:PATCH_LINES])


def _fix(finding: Finding) -> FixView | None:
    fix = finding.fix
    if fix is None:
        return None
    counts = (
        (fix.extra_flushes, "flush", "flushes"),
        (fix.extra_fences, "fence", "fences"),
        (fix.extra_syncs, "sync", "syncs"),
    )
    added = [sentences.plural(count, one, many) for count, one, many in counts if count]
    patch = [
        f"{edit.file}:{edit.line} {'=' if edit.replaces else '+'} {text}"
        for edit in fix.edits
        for text in edit.text.split("\n")
    ]
    return FixView(
        fix.kind,
        line(fix.words, 600),
        line(fix.verified, 400),
        f"{' and '.join(added)} more in the recorded run" if added else "",
        tuple(line(text, 200) for text in patch[:PATCH_LINES]),
        _diff(finding, fix),
        line(fix.no_edit, 300) if not fix.recipe else "",  # that is what to do instead
        tuple(line(text.expandtabs(4), 200) for text in fix.recipe[:PATCH_LINES]),
    )
