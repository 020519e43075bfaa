"""Invariants that a run suggests: what they say of its update behaviours and threads, and what to try first."""
