"""Mutants of a recorded run: one flush, fence or sync removed or moved, and the crash states that this adds.

It hands on mutants, their new crash states, and verdicts on many of them by few runs of the check.
"""
