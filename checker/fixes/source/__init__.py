"""A fix as an edit of C or C++ source: which lines, which call the program has for it, whether the unit still compiles.

It takes a tried fix and returns a patch.

Other rooms import `c_source`, `c_targets`, `patch`, `source_edit` and `unit_compiles`.
"""
