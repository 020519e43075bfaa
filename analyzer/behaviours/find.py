"""Finds the update behaviours of a run: by types for stores, by call stacks for system calls."""

from __future__ import annotations

from crashcheck.analyzer.behaviours.behaviour import Behaviours, find_typed_behaviours
from crashcheck.analyzer.behaviours.calls.of_calls import find_call_behaviours
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.runtime.trace_format import Recorder


def find_behaviours(graph: PersistenceGraph, facts: Facts | None) -> Behaviours:
    """All update behaviours: of mapped files by type and instance (§4.2), of system calls by call stack (§4.1)."""
    if graph.trace.recorder is Recorder.SYSCALLS:
        return find_call_behaviours(graph, facts)
    return find_typed_behaviours(graph, facts)
