"""Marked operations as update behaviours: they hold orders between instances that no type joins."""

from __future__ import annotations

import dataclasses

import numpy as np

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.behaviours.behaviour import Behaviours
from crashcheck.analyzer.behaviours.instances import Instances
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.runtime.trace_format import Kind

OPERATION = "(operation)"  # the type of each


def find_operations(found: Behaviours) -> Behaviours:
    """Of each marked operation that updated something: what its thread updated in it, in order of their marks.

    `found` are the behaviours of the same run by instance and epoch.
    """
    operation = _operation_of(found)
    order = np.argsort(operation, kind="stable")
    order = order[operation[order] >= 0]
    own = operation[order]
    start = np.append(np.searchsorted(own, unique(own)), len(own))
    many = len(start) - 1
    none = np.zeros(0, dtype=np.int64)
    zero = np.zeros(many, dtype=np.int64)
    instances = Instances(zero, zero, zero, zero, none, none, none, (OPERATION,), ())
    return dataclasses.replace(
        found, instances=instances, instance=np.arange(many), start=start.astype(np.int64), row_node=order, level=None
    )


def _operation_of(found: Behaviours) -> Ints:
    """Of each node the event with which its thread's operation began; -1 outside of operations."""
    events = found.graph.trace.events
    marks = found.graph.trace.rows(Kind.MARK_BEGIN, Kind.MARK_END)
    thread, span = events["thread"].astype(np.int64), len(events) + 1
    passed = np.sort(thread[marks] * span + marks)
    event = found.nodes.event
    last = np.searchsorted(passed, thread[event] * span + event) - 1
    mark = passed[np.maximum(last, 0)] if len(passed) else np.zeros(len(event), dtype=np.int64)
    inside = (last >= 0) & (mark // span == thread[event])
    inside &= events["kind"][np.where(inside, mark % span, 0)] == Kind.MARK_BEGIN
    return np.where(inside, mark % span, -1)
