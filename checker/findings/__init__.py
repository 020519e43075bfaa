"""Findings: why a crash state fails, in its smallest form, with the updates to blame and their source lines."""
