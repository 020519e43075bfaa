"""Crash states: the instants at which a crash is considered, and what may have persisted at each.

Returns a `StateSpace`, which counts its `CrashState`s and yields each once, from the least deviating on.

Other rooms import `by_deviation`, `canonical`, `counting`, `granules`, `ideals`, `partial_order`, `points`,
`signature`, `space` and `sweep`.
"""
