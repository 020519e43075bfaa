"""Update behaviours: the updates that do one task together.

Returns `Behaviours`, and `BehaviourGroup`s: the search tests the representative of a group instead of every member.

Other rooms import `behaviour`, `instances`, `numbers`, `sites` and `updates`.
"""

from __future__ import annotations

from crashcheck.analyzer.behaviours.behaviour import Behaviour, Behaviours, find_typed_behaviours
from crashcheck.analyzer.behaviours.calls.of_calls import find_call_behaviours
from crashcheck.analyzer.behaviours.groups import BehaviourGroup, find_groups
from crashcheck.analyzer.behaviours.operations import find_operations
from crashcheck.analyzer.behaviours.represents import BehaviourOrder
from crashcheck.analyzer.behaviours.sites import StaticSite
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.runtime.trace_format import Recorder

__all__ = [
    "Behaviour",
    "BehaviourGroup",
    "BehaviourOrder",
    "Behaviours",
    "StaticSite",
    "find_behaviours",
    "find_groups",
    "find_operations",
]


def find_behaviours(graph: PersistenceGraph, facts: Facts | None) -> Behaviours:
    """All update behaviours: of mapped files by type and instance (§4.2), of system calls by call stack (§4.1)."""
    if graph.trace.recorder is Recorder.SYSCALLS:
        return find_call_behaviours(graph, facts)
    return find_typed_behaviours(graph, facts)
