"""From a program and its trace to what may survive a crash."""
