"""What a run suggests of a program: likely invariants, anticipated interleavings, and groups in the order in which they may fail."""

from crashcheck.analyzer.invariants.inference import Inferred, infer
from crashcheck.analyzer.invariants.keys import Key
from crashcheck.analyzer.invariants.queries import StateQuery
from crashcheck.analyzer.invariants.rules import LikelyInvariant, ReadEvidence

__all__ = ["Inferred", "Key", "LikelyInvariant", "ReadEvidence", "StateQuery", "infer"]
