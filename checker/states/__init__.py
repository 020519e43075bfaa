"""Crash states: the instants at which a crash is considered, and what may have persisted at each.

Hands on `StateSpace` and `CrashState`, each state once: how many there are, and in which order they deviate.
"""
