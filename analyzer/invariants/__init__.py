"""Invariants that a run suggests: what they say of its update behaviours and threads, and what to try first."""

from crashcheck.analyzer.invariants.inference import Inferred, infer
from crashcheck.analyzer.invariants.queries import StateQuery
from crashcheck.analyzer.invariants.rules import LikelyInvariant, ReadEvidence
from crashcheck.analyzer.invariants.variables import Variable

__all__ = ["Inferred", "LikelyInvariant", "ReadEvidence", "StateQuery", "Variable", "infer"]
