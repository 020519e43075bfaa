"""Mutants of a recorded run: one flush, fence or sync removed or moved, and the crash states that this adds.

Returns mutants, their new crash states, and verdicts on many of these states by few runs of the check.

Other rooms import `common_space`, `mutant_search`, `mutant_states`, `mutants` and `product_exploration`.
"""
