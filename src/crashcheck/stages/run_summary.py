"""A run's result for the reports: what was found, and what that rests on: trace summary, warnings and notes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

import crashcheck
from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.compile.facts import STORES, ProgramFacts, Site
from crashcheck.analyzer.persistence.redundant_persists import find_redundant_persists
from crashcheck.analyzer.persistence.shown_names import shown_paths
from crashcheck.analyzer.trace.calls import injected_faults
from crashcheck.analyzer.trace.completeness import Completeness
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.findings.call_chains import call_chains, outside_helpers, storing_functions
from crashcheck.checker.findings.provenance import Project
from crashcheck.checker.policy import sources_of
from crashcheck.checker.results import (
    NOT_COMPARED,
    Base,
    FailOn,
    Location,
    Note,
    NotInstrumented,
    RunResult,
    StateCounts,
    StopReason,
    TraceSummary,
    Unexercised,
)
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.subject import UPDATES, Subject
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.runtime.record import Recording
from crashcheck.runtime.trace_format import Kind
from crashcheck.runtime.validate import read_notes, remarks
from crashcheck.source import SourceTree
from crashcheck.stages.not_followed import not_followed
from crashcheck.stages.recording import RecordedRun, ended_operations, modules
from crashcheck.wording import listed

# Libraries that every program needs, or whose updates the recorder records at their interface (libpmem).
_KNOWN_LIBRARIES = (
    *("ld-linux", "libc.", "libm.", "libdl.", "librt.", "libpthread.", "libresolv.", "libutil."),
    *("libstdc++.", "libc++", "libgcc_s.", "libunwind", "libatomic.", "libcrashcheck.", "libpmem."),
)

_MOST_FAULTS = 5  # shown
_MOST_NEWER = 3  # shown
_PMEM_API = {"pmem_persist", "pmem_flush"}  # of one unit: that of libpmem

_SYSTEM = tuple(
    f"{top}/{name}/" for top in ("", "/usr") for name in ("bin", "sbin", "lib", "lib32", "lib64", "libexec")
)
_UNSEEN = "built without crashcheck-cc: its own stores are not seen"
_REMARKS = {
    "pattern": "{}: no pattern of [pool] files matches it; in every crash image it is as before the workload",
    "seccomp": "a seccomp filter is not permitted here ({}): each system call stopped the program, so it ran slowly",
    "io_uring": "io_uring was {} (ENOSYS), as by an older kernel: programs then use calls that are recorded",
    "uncopied": "{}: it could not be read, or is another file system; in crash images it has no content",
    "unwatched": "{}: it could not be read, or is another file system; what changed in it is not recorded",
    "stdout": "some of what was printed is zeros in {{stdout}}: the program did not write it from its memory",
    "left": "{} was still running when the command ended; what it wrote from then on is not recorded",
    "private": "{}: mapped with MAP_PRIVATE; stores to that mapping never reach the file",
}


def summarise(config: Config, run: RecordedRun, found: SearchResult, warnings: Sequence[str]) -> RunResult:
    """Everything that the reports need. `warnings` are reported after those of the recording and of the search."""
    facts, trace = run.facts, run.subject.trace
    return RunResult(
        config_path=str(config.path),
        model=model_text(config),
        strategy=config.strategy.name
        + (f" deviations={config.strategy.deviations}" if config.strategy.name == "bounded" else ""),
        stop_reason=found.stop_reason,
        states=found.states,
        trace=trace_summary(trace, run.completeness),
        findings=found.findings,
        uncertain=found.uncertain,
        not_instrumented=()
        if run.subject.graph.family.names
        else not_instrumented(
            facts,
            trace,
            config.workload.command,
            config.folder,
            unexplained=run.completeness.unexplained_bytes > 0,
        ),
        warnings=(
            *older_than_sources(facts, trace, SourceTree(config.folder)),
            *recording_warnings(facts, run.recording, config.check.outputs),
            *recorded_twice(facts, trace),
            *trace_warnings(trace, run),
            *((run.unread.note,) if run.unread.failed else ()),
            *pool_creation(trace),
            *found.warnings,
            *warnings,
        ),
        seconds=0.0,
        version=crashcheck.__version__,
        groups=found.groups,
        notes=performance_notes(run.subject, facts, config.folder) if config.report.notes else (),
        unexercised=find_blind_spots(trace, facts, config.folder),
        discoveries=found.discoveries,
        first_state_s=found.first_state_s,
        fail_on=cast(FailOn, config.report.fail_on),
    )


def not_modelled(config: Config, trace: Trace) -> RunResult:
    """The result where the budget ended before it was known which crash states there are."""
    states = StateCounts(0, False, "no crash point was examined", 0, 0, 0, 0, 0, 0)
    seen = replace(trace_summary(trace, Completeness(())), not_followed=(NOT_COMPARED,))
    why = "the time budget ended while the run was modelled: raise it; its crash states are not known"
    empty = nothing_searched(config, None, "")
    return replace(empty, stop_reason=StopReason.BUDGET_SECONDS, states=states, trace=seen, warnings=(why,))


def nothing_searched(config: Config, base: Base | None, name: str) -> RunResult:
    """The result where a change holds nothing that is compiled or run: nothing was searched."""
    return RunResult(
        config_path=str(config.path),
        model=model_text(config),
        strategy=config.strategy.name,
        stop_reason=StopReason.EXHAUSTED,
        states=StateCounts(0, True, "", 0, 0, 0, 0, 0, 0),
        trace=TraceSummary("", 0, 0, 0, 0, 0, 0, 0, (), 0, 0, 0, ()),
        findings=(),
        uncertain=(),
        not_instrumented=(),
        warnings=(),
        seconds=0.0,
        version=crashcheck.__version__,
        base=base,
        name=name,
    )


def model_text(config: Config) -> str:
    """The crash model as reports name it: "page-cache tear=512", "ext4 amplified"."""
    tear = f" tear={config.model.tear}" if config.model.tear else ""
    return config.model.name + tear + (" amplified" if config.model.amplify else "")


def not_instrumented(
    facts: ProgramFacts, trace: Trace, command: Command, folder: Path, *, unexplained: bool = False
) -> tuple[NotInstrumented, ...]:
    """Units, libraries and assembly whose stores were not recorded, in a stable order.

    If bytes changed that the trace does not account for (`unexplained`), programs built without crashcheck-cc count,
    too, except the system's, and the libraries of all of them. Else a shell only starts others, a client only asks.
    """
    unseen = [path for path in facts.without_facts if unexplained and not path.startswith(_SYSTEM)]
    out = [NotInstrumented(SourceTree(folder).relative(path), _UNSEEN) for path in unseen]
    out += [NotInstrumented(unit.source, unit.not_instrumented) for unit in facts.plain]
    for unit in facts.units.values():
        for item in unit.not_understood:
            place = f"{item.position.file}:{item.position.line}"
            out.append(NotInstrumented(unit.source, f"{item.text.strip()} at {place} may write memory unseen"))
    programs = [path for path in modules(trace, command, folder) if unexplained or path not in facts.without_facts]
    for library in sorted({name for path in programs for name in _needed(path)}):
        if not library.startswith(_KNOWN_LIBRARIES) and not _has_facts(library, facts, trace):
            out.append(NotInstrumented(library, _UNSEEN))
    return tuple(dict.fromkeys(sorted(out, key=lambda item: (item.unit, item.what))))


def _has_facts(library: str, facts: ProgramFacts, trace: Trace) -> bool:
    return any(Path(unit.module_path).name.startswith(library) for unit in trace.units)


def _needed(path: str) -> Iterator[str]:
    """Names of the shared libraries that an ELF file needs; none for any other file."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, DynamicSection):
                    yield from (str(getattr(tag, "needed", "")) for tag in section.iter_tags("DT_NEEDED"))
    except Exception:  # of a damaged file pyelftools raises errors of its parser, of zlib, of the codecs…
        return


def recording_warnings(facts: ProgramFacts, recording: Recording, outputs: Sequence[str] = ()) -> tuple[str, ...]:
    """Notes of crashcheck-cc about the program, and of the recorder about files that it did not watch. `outputs`: as in
    the configuration; each run of a check removes those in the pool first."""
    notes = {f"{Path(unit.source).name}: {note}" for unit in facts.units.values() for note in unit.notes}
    said = [
        note for note in read_notes(recording.trace) if note[0] != "pattern" or f"{{pool}}/{note[1]}" not in outputs
    ]
    silent = remarks(_REMARKS, said)
    left = len({text.partition(" ")[0] for reason, text in said if reason == "ended"})
    ended = f"processes that the workload left running: {left}. They were ended with it"
    return (*sorted(notes), *silent, *((ended,) if left else ()))


def older_than_sources(facts: ProgramFacts, trace: Trace, tree: SourceTree) -> tuple[str, ...]:
    """A warning for each program or library that ran although the project's sources had been written after it: a build
    that does not know of its headers leaves the old one, and a change in them without a finding."""
    recorded_ns, out = trace.path.stat().st_mtime_ns, []
    for module in sorted({unit.module_path for unit in trace.units}):
        ran = {unit.key for unit in trace.units if unit.module_path == module}
        units = {key: unit for key, unit in facts.units.items() if key in ran}
        built_ns = _written_ns(module) or recorded_ns
        newer = [
            name
            for name in sources_of(tree.folder, replace(facts, units=units))
            if not name.startswith("/") and built_ns < _written_ns(tree.folder / name) < recorded_ns
        ]
        if newer:
            out.append(
                f"{tree.relative(module)} is older than {listed(newer, _MOST_NEWER)}: what was tested may "
                "lack changes of them. Let the build compile it again (in a Makefile, -MMD makes it depend on headers)"
            )
    return tuple(out)


def _written_ns(path: str | Path) -> int:
    """When a file was last written; 0 for one that is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def recorded_twice(facts: ProgramFacts, trace: Trace) -> tuple[str, ...]:
    """A warning for each libpmem that crashcheck-cc compiled: its calls are recorded, and what it does in them, too."""
    loaded = {unit.module_path for unit in trace.units if set(_functions(facts, unit.key)) >= _PMEM_API}
    return tuple(
        f"{path} is libpmem, compiled by crashcheck-cc: its stores, flushes and fences are recorded twice, in each "
        "call and inside it. Use the prebuilt libpmem of your distribution (docs/writing-a-check.md)"
        for path in sorted(loaded)
    )


def _functions(facts: ProgramFacts, key: int) -> Iterable[str]:
    known = facts.unit(key)
    return () if known is None else known.functions


def trace_warnings(trace: Trace, run: RecordedRun) -> tuple[str, ...]:
    """What the trace does not account for, by file, and what crash states leave out of it."""
    lines = list(run.unaccounted())
    failed = [f"{one.call} of {shown_paths(trace)(one.path)} with {one.error}" for one in injected_faults(trace)]
    if failed:
        calls = listed(failed, _MOST_FAULTS)
        lines.append(f"made to fail ([[faults]]): {calls}; then the workload {run.recording.end.text(None)}")
    changes = len(trace.rows(Kind.UNLINK, Kind.RENAME))
    if changes:
        lines.append(
            f"watched files were renamed or deleted {changes} times: each change is taken to be durable at once, with "
            "all that the files held; a crash that loses the new name, or keeps it without the data, is not tested: "
            'with [workload] recorder = "syscalls" and [model] name = "ext4" it is'
        )
    return tuple(lines)


def pool_creation(trace: Trace) -> tuple[str, ...]:
    """A warning if the workload creates watched files and fills them before its first operation begins."""
    kinds = trace.events["kind"]
    begins = trace.rows(Kind.MARK_BEGIN)
    if not len(begins):
        return ()
    created = np.unique(trace.events["file"][: begins[0]][kinds[: begins[0]] == Kind.CREATE])
    early = np.isin(trace.events["file"][: begins[0]], created) & among(kinds[: begins[0]], (Kind.STORE, Kind.WRITE))
    if not np.any(early):
        return ()
    names = ", ".join(sorted({trace.files[int(number)].path for number in created}))
    updates = len(trace.rows(*UPDATES))
    return (
        f"the workload creates {names} before its first operation: {int(early.sum())} of {updates} updates "
        "are made there, and crashes among them are tested as well. If a half-made pool may be thrown away, "
        "create it in [setup]",
    )


def trace_summary(trace: Trace, completeness: Completeness) -> TraceSummary:
    """Counts of a trace's events, and how many of the bytes that changed it accounts for."""

    def count(*wanted: Kind) -> int:
        return len(trace.rows(*wanted))

    names = {trace.data(index).decode("utf-8", "replace") for index in trace.rows(Kind.UNMODELLED).tolist()}
    return TraceSummary(
        path=str(trace.path),
        events=len(trace.events),
        stores=count(Kind.STORE, Kind.WRITE),
        flushes=count(Kind.FLUSH),
        fences=count(Kind.FENCE),
        syncs=count(Kind.SYNC_END),
        threads=len(np.unique(trace.events["thread"])),
        processes=len(np.unique(trace.events["pid"])),
        files=tuple(sorted(map(shown_paths(trace), (file.path for file in trace.files.values())))),
        operations=ended_operations(trace),
        explained_bytes=completeness.explained_bytes,
        unexplained_bytes=completeness.unexplained_bytes,
        unmodelled_calls=tuple(sorted(names)),
        truncated=trace.truncated,
        not_followed=not_followed(trace, completeness),
    )


def performance_notes(subject: Subject, facts: ProgramFacts, folder: Path) -> tuple[Note, ...]:
    """Redundant flushes, fences and syncs by source line, which is the caller's for helpers that only flush and fence.

    Those without a line are left out.
    """
    chain = call_chains(subject.trace, facts, SourceTree(folder).relative)
    storing = storing_functions(subject.trace, chain)
    counts: dict[tuple[str, Location], tuple[int, int]] = {}
    for each in find_redundant_persists(subject.graph):
        places = chain(each.event)
        if places:
            key = (each.waste.value, places[outside_helpers(places, storing)])
            before = counts.get(key, (0, 0))
            counts[key] = (before[0] + each.count, before[1] + each.total)
    found = [Note(waste, here, count, total) for (waste, here), (count, total) in counts.items()]

    def in_order(note: Note) -> tuple[str, int, int, str]:
        return note.location.file, note.location.line, note.location.column, note.waste

    return tuple(sorted(found, key=in_order))


def find_blind_spots(trace: Trace, facts: ProgramFacts, folder: Path) -> tuple[Unexercised, ...]:
    """Functions that store to a type that is in the files, although neither they nor what they call stored to it there.

    Those with the most stores are first. Stores through pointers of unknown type do not count, and a run that writes
    the files by system calls only has no blind spots.
    """
    project = Project(facts, folder)
    kinds = trace.events["kind"]
    stored = list(_known(trace, facts, np.unique(trace.events["site"][kinds == Kind.STORE]).tolist()))
    updates = among(kinds, (Kind.STORE, Kind.WRITE))
    stacks = np.unique(trace.events["stack"][updates]).tolist()
    calls = list(_known(trace, facts, {call for stack in stacks for call in trace.stack(stack)}))
    types = {step.type for site in stored for step in site.steps}
    reached = {(place.file, place.function) for site in (*stored, *calls) for place in site.positions}
    found: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for unit in facts.units.values():
        for site in unit.sites:
            key = (site.file, site.function)
            if site.kind in STORES and key not in reached and site.line and _type(site) in types:
                found.setdefault(key, set()).add((site.line, site.column))
    spots = [
        Unexercised(function, project.file(file), min(at)[0], len(at))
        for (file, function), at in found.items()
        if project.has(file)
    ]
    return tuple(sorted(spots, key=lambda one: (-one.stores, one.file, one.line, one.function)))


def _known(trace: Trace, facts: ProgramFacts, ids: Iterable[int]) -> Iterator[Site]:
    return (site for site in (trace.site(id_, facts) for id_ in ids) if site is not None)


def _type(site: Site) -> str:
    """The innermost type that has a name; "" if there is none."""
    return next((step.type for step in site.steps if not step.type.startswith("(")), "")
