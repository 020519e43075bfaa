"""Likely invariants: orders of updates that the reads of a run rely on (Witcher).

Returns `Inferred`, the invariants and the crash states that would violate them, and `RankedGroup`s, the groups in the
order in which they are tested.

Other rooms import `check_reads` and `ranking`.
"""

from crashcheck.analyzer.invariants.inference import Inferred, infer
from crashcheck.analyzer.invariants.queries import Queries, StateQuery
from crashcheck.analyzer.invariants.ranking import RankedGroup, rank_groups
from crashcheck.analyzer.invariants.rules import LikelyInvariant, ReadEvidence
from crashcheck.analyzer.invariants.variables import Variable

__all__ = [
    "Inferred",
    "LikelyInvariant",
    "Queries",
    "RankedGroup",
    "ReadEvidence",
    "StateQuery",
    "Variable",
    "infer",
    "rank_groups",
]
