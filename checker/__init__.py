"""Crash states, the images they leave, and the verdicts of the check on them."""
