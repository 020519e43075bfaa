"""What a run found: verdicts on crash states, findings, and the counts of what was not covered.

These values are all that a report is given; a report never calls back into the analysis.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

Level = Literal["error", "warning", "note"]
FailOn = Literal["none", "note", "warning", "error"]
# Ranges that a JSON report is held to where it is read (reports/formats/json_report.py).
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]  # every JSON reader keeps such an integer exactly
Number = Annotated[int, Meta(ge=1, le=2**53 - 1)]
States = Annotated[int, Meta(ge=0)]  # a number of crash states grows past any bound
Line = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Index = Annotated[int, Meta(ge=-1, le=2**53 - 1)]
Amount = Annotated[float, Meta(ge=0)]
Fate = Annotated[str, Meta(pattern="^(durable|persisted|lost|unreached)?$")]
Compared = Annotated[str, Meta(pattern="^(introduced|existing|not-compared)?$")]
Waste = Annotated[str, Meta(pattern="^(clean-flush|repeated-flush|empty-fence|empty-sync)$")]
KILL_SHOWS_IT = "no reordering needed: `kill -9` shows it"  # in `Finding.note`
TO_SETTLE = "; to settle it: "  # in `Finding.uncertain`, between why it is not proved and what to do about that
COUNTED = "crash points were counted"  # ends `StateCounts.feasible_note` where the states of others are not known
CRASHED = "recoveries were crashed"  # the same, of recoveries
HALF_STORE = "tear=8"  # in a finding's model: half of a misaligned store of at most 8 bytes survives
CRASH_STATE = "crash state"  # what most searches check
CONTROL_GUIDE = "docs/nodes.md#what-is-not-controlled"
NODE_RUN = "run"  # of several nodes: what a search over orders of actions checks
BLIND = (  # a warning
    "the check also passes if, after the whole workload, the files that it changed are filled with zeros, and if each "
    "of their bits is inverted. So it may pass whatever a crash leaves. It should open the files in {pool}, and exit "
    "with another status than 0 if something that the workload finished is not there"
)
RESTORE = "restore"  # the kind of a fix that puts back what the change under review deleted
LEVELS: tuple[Level, ...] = ("note", "warning", "error")  # the most severe last


class Outcome(StrEnum):
    """How the check of one crash image ended."""

    PASS = "pass"
    FAIL = "fail"  # exit status other than 0
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    LIMIT = "limit"  # ended by a memory, file-size or output limit


class StopReason(StrEnum):
    """Why the search ended."""

    EXHAUSTED = "exhausted"  # every case that the strategy plans was executed or pruned as equal
    BUDGET_STATES = "budget-states"
    BUDGET_SECONDS = "budget-seconds"
    INTERRUPTED = "interrupted"
    DISK_FULL = "disk-full"
    WORKER_LOST = "worker-lost"  # a process that runs checks was ended by somebody else
    REOPEN = "reopen"  # of an earlier version: a clean reopen changed what the driver printed

    @property
    def broken_off(self) -> bool:
        """Whether the user or the machine ended it: nothing else is done then."""
        return self in (StopReason.INTERRUPTED, StopReason.DISK_FULL, StopReason.WORKER_LOST)

    @property
    def cut_short(self) -> bool:
        """Whether the same search could end later another time."""
        return self.broken_off or self is StopReason.BUDGET_SECONDS


class FindingKind(StrEnum):
    """What is wrong; docs/findings.md describes how each is decided."""

    ORDERING = "ordering"
    ATOMICITY = "atomicity"
    UNPERSISTED = "unpersisted"
    RECOVERY_FAILURE = "recovery-failure"
    REOPEN = "reopen"  # no crash is needed: a clean close and reopen changes the output
    ACTIONS = "actions"  # of several nodes: an order of messages, time-outs and failures


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one execution of the check on one crash image."""

    outcome: Outcome
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**53 - 1)] | None  # None unless the process exited
    signal: Count | None
    output: str  # standard output and error, bounded, decoded with replacement
    output_truncated: bool
    seconds: Amount
    signs: frozenset[str] = frozenset()  # of a failure: what shows it, whatever the numbers (oracles/symptoms.py)

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASS

    def fails_as(self, other: Verdict) -> bool:
        """Whether a failure shows what another shows, and perhaps more, or less."""
        return self.shows_no_more_than(other) or bool(other.signs and other.shows_no_more_than(self))

    def shows_no_more_than(self, other: Verdict) -> bool:
        """Whether a failure may be the same as another: it ended equally, and shows nothing that the other does not.

        Which signal it died of does not count: damaged memory shows as one or another.
        """
        equal = self.outcome is other.outcome and self.exit_code == other.exit_code
        return equal and self.signs <= other.signs


@dataclass(frozen=True, slots=True)
class Frame:
    """One call site of a call stack."""

    function: str
    file: str
    line: Line

    @property
    def location(self) -> Location:
        return Location(self.file, self.line, 0, self.function, "", ())


class SourcePoint(NamedTuple):
    """Where in the source, and nothing else: what two `Location`s of one statement share."""

    file: str
    line: int
    column: int


class SourceFunction(NamedTuple):
    """A function of the program: two files may each have a static one of the same name."""

    file: str
    name: str


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the source. `file` is relative to the project's folder where it is inside it."""

    file: str
    line: Line  # 1-based; 0 if unknown
    column: Line
    function: str
    variable: str  # "entry.valid", or "" where no type is known
    stack: tuple[Frame, ...]  # innermost caller first
    text: str = ""  # the source line, stripped
    expression: str = ""  # where no type is known, what the source stores to: "*ref"

    @property
    def name(self) -> str:
        """What is stored to, as well as it is known."""
        return self.variable or self.expression

    @property
    def called_from(self) -> Frame | None:
        """Of a place outside the project: the innermost call in the project's own source that led there, if any."""
        if not self.file.startswith("/"):
            return None
        return next((frame for frame in self.stack if frame.line and not frame.file.startswith(("/", "<"))), None)

    @property
    def point(self) -> SourcePoint:
        """The key of the place."""
        return SourcePoint(self.file, self.line, self.column)

    @property
    def owner(self) -> SourceFunction:
        """The function that the place is in."""
        return SourceFunction(self.file, self.function)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An update of the failing behaviour, for the picture of the persistence graph."""

    id: Count
    label: str
    state: Fate  # as in ScheduleStep
    granule: Index
    location: Location | None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """`source` must persist before `target`, because of `reason`."""

    source: Count
    target: Count
    reason: str  # "same line" | "flush and fence" | "clflush" | "sync" | "same page" | "drain"


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines put into a source file before (or after) one of its lines. `file` is named as in Location."""

    file: str
    line: Annotated[int, Meta(ge=1, le=2**31 - 1)]  # 1-based
    insert_before: bool
    text: str  # whole lines, indented, without the last newline
    replaces: str = ""  # the line itself, where it must change (a body without braces); `text` is what it becomes


@dataclass(frozen=True, slots=True)
class Fix:
    """A suggested fix, and what trying it on the recorded run showed, which is no proof.

    `before_failing`: states of the finding that failed; `after_failing`: those that still fail with the edit.
    """

    kind: str  # "flush" | "flush-fence" | "fence" | "sync" | "atomic" (no flush can help) | RESTORE
    words: str
    edits: tuple[Edit, ...] = ()
    before_failing: Count = 0
    after_failing: Count = 0
    verified: str = ""  # what was tried, and what came of it; empty if nothing could be
    extra_flushes: Count = 0  # a run
    extra_fences: Count = 0
    extra_syncs: Count = 0
    no_edit: str = ""  # why there is no edit of the source to apply, else empty
    recipe: tuple[str, ...] = ()  # lines that do it in the program's language; the first one names that


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows a bug, beside the head that all findings have.

    Each kind of evidence is a subclass; those that a crash leaves are in `evidence.py`. Reports show it by its renderer
    (reports/view/evidence).
    """

    verdict: Verdict

    @property
    def summary(self) -> str:
        """When it fails, as a clause."""
        return ""

    @property
    def outcome(self) -> str:
        """What went wrong, as a clause; empty where it is how the check ended."""
        return ""

    @property
    def blamed(self) -> tuple[Location, ...]:
        """The places that share the blame with the finding's own."""
        return ()

    @property
    def places(self) -> tuple[Location, ...]:
        """All places that lead to the failure, the blamed ones first."""
        return self.blamed

    def level(self, model: str) -> Level:
        """How severe the failure is under a model, if it is proved."""
        return "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One bug: a head that every report shows, and the evidence for it."""

    id: str  # stable under moved lines
    kind: FindingKind
    model: str  # the weakest assumption it needs, e.g. "px86", "page-cache", "page-cache tear=512"
    message: str  # "`entry.valid` (hash.c:42) can survive a crash without `entry.value` (hash.c:40)"
    location: Location  # the place to annotate
    evidence: Evidence
    replay: str  # token
    states: Count  # failing cases that this finding explains, for example crash states
    uncertain: str = ""  # why this is not proved, else empty
    note: str = ""  # e.g. "no reordering needed: `kill -9` shows it"
    new: bool = True  # not in the baseline; without a baseline all are
    suppressed: str = ""  # the reason that the user gave for living with it, else empty; still listed
    fix: Fix | None = None
    likenesses: tuple[str, ...] = ()  # further fingerprints, for when the id no longer fits (identity.py)
    compared: Compared = ""  # with the base of the change (--base): "" if there was none
    in_diff: bool = False  # the change that the run was asked about (--diff) touches a function of it
    # Of a change under review, of which the base may lack some:
    merged: tuple[Finding, ...] = ()  # what one fix fixes with it
    elsewhere: tuple[Finding, ...] = ()  # the same, by all functions that led to what is lost, if there are several

    @property
    def settled_by(self) -> str:
        """What to do so that an uncertain finding is proved or goes away; empty if not known."""
        return self.uncertain.partition(TO_SETTLE)[2]

    @property
    def level(self) -> Level:
        """The severity: a note if not proved, else what the evidence makes of it."""
        return "note" if self.uncertain else self.evidence.level(self.model)

    @property
    def blamed(self) -> tuple[Location, ...]:
        """The places that the bug is made of, its own first."""
        return self.location, *self.evidence.blamed

    @property
    def places(self) -> tuple[Location, ...]:
        """All its places, its own first."""
        return self.location, *self.evidence.places


class GroupVerdict(StrEnum):
    """The verdicts of the states of a group of update behaviours."""

    CLEAN = "clean"
    FAILING = "failing"
    HANGS = "hangs"  # every failing one by a time-out
    UNTESTED = "untested"  # none was executed


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of update behaviours that one of them, the representative, was tested for.

    `executed`, `failing`: states of the group, also where another group asked for the same state first. `feasible`:
    how many sets of the representative's updates may have persisted, over its crash points.
    """

    rank: Number  # from 1
    types: tuple[str, ...]  # the representative's first
    instance: str  # "table.pm+448"; "" if no type is known
    operation: Count  # of the representative; 0: before any
    members: Number
    updates: Count
    sites: tuple[Location, ...]  # in the order of the representative's updates
    score: Amount
    because: tuple[str, ...]
    feasible: States
    feasible_exact: bool  # else an upper bound
    executed: Count
    failing: Count
    complete: bool  # the representative was explored to the end, not cut off
    verdict: GroupVerdict
    nodes: tuple[GraphNode, ...]  # the representative's first updates; their `state` is ""
    edges: tuple[GraphEdge, ...]


@dataclass(frozen=True, slots=True)
class NotExplored:
    """Why explored runs did not decide some states. `left`: how many; some of them may have been executed."""

    why: str
    left: States


@dataclass(frozen=True, slots=True)
class StateCounts:
    """How many cases there are (crash states, or another `unit`), and how many were executed, pruned or left."""

    feasible: States
    feasible_exact: bool
    feasible_note: str  # names the bound where it is not exact
    executed: Count
    pruned: Count  # equal to a state already executed
    skipped: Count  # without a verdict when the search ended: being checked, next in turn, or postponed
    failing: Count
    flaky: Count
    uncertain: Count
    put_off: Count = 0  # of the skipped ones: similar to a hang, or where everything fails (docs/search.md)
    explored: States = 0  # not executed, but decided by explored runs: they pass (docs/search.md)
    explored_runs: Count = 0  # ends of these
    not_explored: tuple[NotExplored, ...] = ()
    reused: States = 0  # not executed: decided in an earlier run, and nothing that it used has changed
    reused_from: str = ""  # when that was, if known
    signatures: Count = 0  # site signatures of the plainest states (search/signature_share.py); 0: all are tested
    signatures_tested: Count = 0
    unit: str = CRASH_STATE  # what is counted, as a noun

    def plus(self, other: StateCounts) -> StateCounts:
        """The counts of two searches as one: exact if both are, and a text of the first that has one."""

        def joined(mine: Any, theirs: Any) -> Any:
            if isinstance(mine, bool):
                return mine and theirs
            return mine or theirs if isinstance(mine, str) else mine + theirs

        names = [field.name for field in fields(self)]
        return StateCounts(*(joined(getattr(self, name), getattr(other, name)) for name in names))


@dataclass(frozen=True, slots=True)
class NotFollowed:
    """A call, or a file that changed, of which a trace of system calls does not show what was written."""

    what: str
    way_out: str  # what would give a verdict


NOT_COMPARED = NotFollowed("what changed besides: the trace was not compared with the files", "raise the budget")


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What was recorded and how much of it can be trusted."""

    path: str
    events: Count
    stores: Count
    flushes: Count
    fences: Count
    syncs: Count
    threads: Count
    processes: Count
    files: tuple[str, ...]
    operations: Count
    explained_bytes: Count  # changed bytes that are accounted for by the trace
    unexplained_bytes: Count  # changed bytes written unrecorded; never varied
    unmodelled_calls: tuple[str, ...]
    truncated: str = ""  # why the trace ends early, else empty
    not_followed: tuple[NotFollowed, ...] = ()  # why there is no verdict without findings


@dataclass(frozen=True, slots=True)
class NotInstrumented:
    """A unit, construct, library or program whose stores were not seen."""

    unit: str
    what: str


@dataclass(frozen=True, slots=True)
class Unexercised:
    """A function that stores to types which the files hold, of which the run showed no update of the files."""

    function: str
    file: str
    line: Count  # of its first such store
    stores: Number  # places in it


@dataclass(frozen=True, slots=True)
class Note:
    """Work that could go: flushes, fences or syncs of one place that made nothing durable."""

    waste: Waste  # "clean-flush" | "repeated-flush" | "empty-fence" | "empty-sync"
    location: Location
    count: Number  # redundant; of flushes, lines
    total: Number  # that ran there


@dataclass(frozen=True, slots=True)
class Earlier:
    """A finding of the base, or of the run before, that this run did not meet."""

    id: str
    kind: FindingKind
    message: str
    fate: Annotated[str, Meta(pattern="^(fixed|not-seen)$")]  # fixed: its failing states pass, or no crash leaves them
    executed: Count = 0  # its states that were run again; fixed without one: no crash can leave them any more
    commit: str = ""  # that it was found at, if known


@dataclass(frozen=True, slots=True)
class Base:
    """What a run was compared with (--base)."""

    ref: str
    commit: str
    note: str = ""  # why the base was not searched, or its recording not compared with, else empty
    earlier: tuple[Earlier, ...] = ()
    edits: tuple[str, ...] = ()  # what the change does to the baseline and to suppressions, in sentences
    documents: tuple[str, ...] = ()  # the files of a change that holds documents only: then nothing was searched


@dataclass(frozen=True, slots=True)
class Phase:
    """How long a part of the run took: "recording", "checking"."""

    name: str
    seconds: Amount


@dataclass(frozen=True, slots=True)
class Discovery:
    """When a search found a finding: after so many executed states, and so many of its seconds."""

    finding: str  # its id
    states: Count
    seconds: Amount


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything that the reports need."""

    config_path: str
    model: str
    strategy: str
    stop_reason: StopReason
    states: StateCounts
    trace: TraceSummary
    findings: tuple[Finding, ...]
    uncertain: tuple[Finding, ...]  # failing states that could not be proved (crash-model.md, last section)
    not_instrumented: tuple[NotInstrumented, ...]
    warnings: tuple[str, ...]
    seconds: Amount
    version: str
    groups: tuple[GroupRow, ...] = ()  # those that the strategy took up, from the first in rank
    notes: tuple[Note, ...] = ()  # where [report] notes asks for them
    unexercised: tuple[Unexercised, ...] = ()
    base: Base | None = None
    fail_on: FailOn = "warning"  # the least severity of a finding that fails the run
    name: str = ""  # given by the user, to tell runs of one configuration and model apart
    phases: tuple[Phase, ...] = ()  # in the order in which they began
    discoveries: tuple[Discovery, ...] = ()  # of the findings, proved or not, in their order
    first_state_s: Amount | None = None  # of the search's seconds, until its first state had a verdict; None: none had
    again: tuple[Earlier, ...] = ()  # findings of earlier runs that were tested first (--failing), and not met
    unreached: tuple[str, ...] = ()  # sentences: which functions that the change touches were not run

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Those that are proved, then the uncertain ones."""
        return (*self.findings, *self.uncertain)
