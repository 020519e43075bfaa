"""Benchmarks: what building, recording and checking cost, as ratios measured in one run. Nothing is asserted."""
