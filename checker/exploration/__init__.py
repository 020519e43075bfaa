"""Verdicts on all crash states of a moment at once, by a few runs of the check instead of one run for each state.

Returns which moments are decided, by how many explored runs, and the states that should fail.

Other rooms import `points`, `product` and `runs`.
"""
