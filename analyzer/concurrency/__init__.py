"""Threads: which access of another thread usually comes just before each access, and where a run departs from it."""
