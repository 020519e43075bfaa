"""Epoch subgraphs: where the updates of one instance end one task and begin the next (Pathfinder §4.2.2)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import fresh_rows, sort_rows, unique
from crashcheck.analyzer.behaviours.instances import Instances
from crashcheck.analyzer.behaviours.updates import Nodes
from crashcheck.analyzer.persistence.pieces import Ints

_LOOK_BACK = 64  # witnesses tested one by one: nearly always enough, and all updates at once


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Parallel arrays: an update (event) of an instance, sorted by instance and event."""

    instance: Ints
    event: Ints
    durable_from: Ints  # of what it wrote to the instance
    persisted_by: Ints  # since when all of the instance's updates up to this one have persisted
    repeats: Ints  # the latest earlier step that updated a field of this one; -1: none did
    row: Ints  # where its memberships begin
    thread: Ints


def split_epochs(instances: Instances, nodes: Nodes, thread: Ints) -> Ints:
    """The memberships (rows of `instances`) at which an epoch begins, ascending. `thread`: of each node.

    An epoch of an instance ends before an update I where either holds:

    1. All updates to the instance issued before I have persisted before I, and I updates a field that this epoch has
       updated already.
    2. Another instance, which I does not update, was updated since this epoch's last update, and all its updates issued
       before I have persisted before I. (The paper does not have "since"; without it, one persisted instance anywhere
       would make every update an epoch.) Its last update is of the thread of I, or of the thread of the update of this
       epoch before I: what other threads do meanwhile ends no task of this one.
    """
    steps = _steps(instances, nodes, thread)
    if not len(steps.event):
        return np.zeros(0, dtype=np.int64)
    fresh = fresh_rows(steps.instance)
    before = np.arange(len(steps.event)) - 1
    persisted = ~fresh & (steps.persisted_by[before] <= steps.event)
    elsewhere = _elsewhere(steps, fresh)
    begins = fresh.copy()
    start = -1
    candidates = np.flatnonzero(fresh | elsewhere | (persisted & (steps.repeats >= 0)))
    for at, first, other, repeats in zip(
        candidates.tolist(),
        fresh[candidates].tolist(),
        elsewhere[candidates].tolist(),
        steps.repeats[candidates].tolist(),
        strict=True,
    ):
        # what is a candidate for neither of the other reasons has persisted predecessors
        if first or other or repeats >= start:
            begins[at] = True
            start = at
    return steps.row[begins]


def _steps(instances: Instances, nodes: Nodes, thread: Ints) -> _Steps:
    event = nodes.event[instances.row_node]
    begins = fresh_rows(instances.row_instance, event)
    row = np.flatnonzero(begins)
    if not len(row):
        return _Steps(row, row, row, row, row, row, row)
    step = np.cumsum(begins) - 1
    instance = instances.row_instance[row]
    latest = int(nodes.event[-1]) + 1
    durable = np.maximum.reduceat(np.minimum(nodes.durable_from[instances.row_node], latest), row)
    # the running maximum of each instance, all in one pass
    persisted_by = np.maximum.accumulate(durable + instance * (latest + 1)) - instance * (latest + 1)
    # the step before that updated the same field; several nodes of one update repeat nothing
    order, _ = sort_rows(instances.row_instance, instances.row_field, step)
    of_instance, of_field, of_step = instances.row_instance[order], instances.row_field[order], step[order]
    field_changes = fresh_rows(of_instance, of_field)
    leads = field_changes | fresh_rows(of_step)
    previous = np.where(field_changes, -1, np.concatenate([of_step[:1], of_step[:-1]]))
    earlier = np.empty(len(order), dtype=np.int64)
    earlier[order] = previous[leads][np.cumsum(leads) - 1]
    return _Steps(
        instance,
        event[row],
        durable,
        persisted_by,
        np.maximum.reduceat(earlier, row),
        row.astype(np.int64),
        thread[instances.row_node[row]],
    )


def _elsewhere(steps: _Steps, fresh: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of each step, whether the second criterion holds between it and the step of its instance before it.

    A step of an instance J is a *witness* at the events from where all of J up to it has persisted to J's next step,
    that one excluded: then it is J's last and J has persisted; an update of J itself is never among those events.
    """
    latest = int(steps.event.max()) + 1
    until = np.full(len(steps.event), latest, dtype=np.int64)
    until[:-1][~fresh[1:]] = steps.event[1:][~fresh[1:]]
    since = np.maximum(steps.persisted_by, steps.event + 1)
    witness = np.flatnonzero(since < until)
    witness = witness[sort_rows(steps.event[witness])[0]]
    found = np.zeros(len(steps.event), dtype=np.bool_)
    for thread in unique(steps.thread[witness]).tolist():
        mine = witness[steps.thread[witness] == thread]
        asked = ~fresh & ~found
        asked[1:] &= (steps.thread[1:] == thread) | (steps.thread[:-1] == thread)
        found[_witnessed(steps, mine, since[mine], until[mine], np.flatnonzero(asked))] = True
    return found


def _witnessed(steps: _Steps, witness: Ints, since: Ints, until: Ints, asked: Ints) -> Ints:
    """Those of `asked` that have a witness after the step before them; `witness` is sorted by event."""
    when = steps.event[witness]
    now, last = steps.event[asked], steps.event[asked - 1]
    at = np.searchsorted(when, now) - 1
    hits = []
    for _ in range(_LOOK_BACK):
        alive = at >= 0
        alive[alive] = when[at[alive]] > last[alive]
        asked, now, last, at = asked[alive], now[alive], last[alive], at[alive]
        if not len(asked):
            break
        hit = (since[at] <= now) & (now < until[at])
        hits.append(asked[hit])
        asked, now, last, at = asked[~hit], now[~hit], last[~hit], at[~hit] - 1
    if len(asked):
        hits.append(asked[_latest(when, since, until, now) > last])
    return np.concatenate([asked[:0], *hits])


def _latest(when: Ints, since: Ints, until: Ints, now: Ints) -> Ints:
    """For each of `now`, the latest `when` of the witnesses with since <= now < until; -1 without any."""
    coming = np.argsort(since, kind="stable")
    entries = list(zip(since[coming].tolist(), when[coming].tolist(), until[coming].tolist(), strict=True))
    heap: list[tuple[int, int]] = []
    out = np.full(len(now), -1, dtype=np.int64)
    entered = 0
    for at in np.argsort(now, kind="stable").tolist():
        moment = int(now[at])
        while entered < len(entries) and entries[entered][0] <= moment:
            heapq.heappush(heap, (-entries[entered][1], entries[entered][2]))
            entered += 1
        while heap and heap[0][1] <= moment:
            heapq.heappop(heap)
        if heap:
            out[at] = -heap[0][0]
    return out
