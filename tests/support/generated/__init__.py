"""Random programs that are compiled, recorded for real and compared with a reference, state by state."""
