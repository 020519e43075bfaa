"""Static dependences: which accesses of a program depend on which reads, inside a function and across calls."""
