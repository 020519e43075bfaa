"""The instrumentation pass: which instruction of a unit gets which call into the recorder.

`unit.compile_unit` returns the object and the unit's facts; `unit.prepare_unit` the text for a clang that emits it.

Other rooms import `operations` and `unit`.
"""
