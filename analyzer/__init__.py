"""The analysis, from a program and its trace to what may survive a crash.

It returns program facts (`compile`), a trace (`trace`), a persistence graph (`persistence`), update behaviours
(`behaviours`), likely invariants (`invariants`) and interleavings (`concurrency`).
"""
