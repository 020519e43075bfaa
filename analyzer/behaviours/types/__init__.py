"""The types and instances of updates of mapped files: as the program declares them and as its accesses show them.

It takes the facts of the program and the updates of a trace, and returns the type and the instance of each.

Other rooms import `program_types`, `static_types` and `type_evidence`.
"""
