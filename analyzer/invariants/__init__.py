"""Invariants that a run suggests: what they say of its update behaviours and threads, and what to try first."""

from crashcheck.analyzer.invariants.inference import Inferred, infer
from crashcheck.analyzer.invariants.keys import Key
from crashcheck.analyzer.invariants.queries import StateQuery
from crashcheck.analyzer.invariants.rules import LikelyInvariant, ReadEvidence

__all__ = ["Inferred", "Key", "LikelyInvariant", "ReadEvidence", "StateQuery", "infer"]
