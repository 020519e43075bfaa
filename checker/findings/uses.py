"""The uses of a helper: what writes logs and snapshots, or any field, at one line has several places.

Calls of a line that names no variable are one use if the same functions led to them, or if they change the same words,
or (system calls) files whose names differ in numbers alone; or if both are one use with a third.
"""

from __future__ import annotations

import itertools
from pathlib import PurePath

import numpy as np

from crashcheck.analyzer.arrays import distinct_rows, number_rows
from crashcheck.analyzer.disjoint_sets import DisjointSets
from crashcheck.analyzer.persistence.pieces import WORD_BYTES, Ints
from crashcheck.analyzer.persistence.shown_names import pattern_of
from crashcheck.checker.findings.templates import of_template
from crashcheck.checker.results import Location, SourcePoint
from crashcheck.checker.subject import Subject


def find_uses(subject: Subject) -> dict[int, str]:
    """What distinguishes the use that a call with its callers is (a number of Trace.calls), where a line has several.

    In another version's recording that is equal: a file's name, or else functions.
    """
    graph = subject.graph
    calls, firsts, which = np.unique(subject.trace.calls(graph.event), return_index=True, return_inverse=True)
    lines: dict[SourcePoint, dict[int, str]] = {}
    for call, piece in enumerate(firsts.tolist()):
        here = subject.place(piece)
        if here is not None and not here.variable:
            lines.setdefault(here.point, {})[call] = callers_of(here)
    line, name = np.full(len(calls), -1), dict[int, str]()
    linked: DisjointSets[int | tuple[int, str]] = DisjointSets()
    for number, called in enumerate(lines.values()):
        if len(set(called.values())) > 1:
            line[list(called)] = number
            name |= called
            for call, callers in called.items():
                linked.join(call, (number, callers))
    rows = np.flatnonzero(line[which] >= 0)
    mine, files, words = which[rows], graph.file[rows], graph.offset[rows] // WORD_BYTES
    if graph.family.names:
        words = np.zeros(len(rows), dtype=np.int64)
        files, name = _patterns(subject, rows, mine)
    changed = np.stack(distinct_rows(line[mine], files, words, mine), axis=1).tolist()
    for (*one, call), (*other, after) in itertools.pairwise(changed):
        if one == other:
            linked.join(call, after)
    groups: dict[int, list[list[int]]] = {}
    for each in linked.sets():
        group = [call for call in each if isinstance(call, int)]
        groups.setdefault(int(line[group[0]]), []).append(group)
    return {
        int(calls[call]): min(name[other] for other in group)
        for several in groups.values()
        if len(several) > 1
        for group in several
        for call in group
    }


def callers_of(here: Location) -> str:
    """The functions that led to a place, innermost first, each once: a function may call itself any number of times."""
    return " ".join(dict.fromkeys(f"{PurePath(frame.file).name}:{of_template(frame.function)}" for frame in here.stack))


def _patterns(subject: Subject, rows: Ints, calls: Ints) -> tuple[Ints, dict[int, str]]:
    """A number for the name of each piece's file, whatever numbers that has; and of each call the first such name."""
    number, first = number_rows(calls, subject.graph.file[rows])
    patterns = [pattern_of(subject.path_of(int(rows[at]))) for at in first.tolist()]
    _, known = np.unique(np.array(patterns, dtype=object), return_inverse=True)
    name: dict[int, str] = {}
    for call, pattern in zip(calls[first].tolist(), patterns, strict=True):
        name[call] = min(pattern, name.get(call, pattern))
    return known.reshape(-1)[number], name
