"""Runs of the check that are kept in a file: those of the shards of a search, and those of a search that is resumed.

Other rooms import `keys`, `runs_file` and `shards`.
"""
