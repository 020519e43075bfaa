"""Compiles C and C++ so that the program reports its stores, flushes, fences and calls to the recorder.

It returns objects with hooks, and in each the program facts (`facts`): sites, types and static dependences. Nothing is
imported here: a configure probe must not pay for what only a build needs.

Other rooms import `demangling`, `facts`, `learned_sets` and `site_names`.
"""
