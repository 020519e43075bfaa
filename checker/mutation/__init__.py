"""Mutants of a recorded run: one flush, fence or sync removed or moved, and the crash states that this adds."""
