"""Static dependences: which accesses of a program depend on which reads, inside a function and across calls.

`reader.read_functions` returns a unit's summaries, kept in its facts; `interprocedural.site_dependences` those of all
units, closed over calls.

Other rooms import `interprocedural`, `reader` and `summaries`.
"""
