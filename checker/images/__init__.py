"""Crash images: the bytes that a crash state leaves in the files, and folders that hold them for a check."""
