"""Update behaviours: the updates that do one task together.

Returns `Behaviours`, and `BehaviourGroup`s: the search tests the representative of a group instead of every member.

Other rooms import `behaviour`, `instances`, `sites` and `updates`.
"""

from crashcheck.analyzer.behaviours.behaviour import Behaviour, Behaviours
from crashcheck.analyzer.behaviours.find import find_behaviours
from crashcheck.analyzer.behaviours.groups import BehaviourGroup, find_groups
from crashcheck.analyzer.behaviours.operations import find_operations
from crashcheck.analyzer.behaviours.represents import Shape
from crashcheck.analyzer.behaviours.sites import StaticSite

__all__ = [
    "Behaviour",
    "BehaviourGroup",
    "Behaviours",
    "Shape",
    "StaticSite",
    "find_behaviours",
    "find_groups",
    "find_operations",
]
