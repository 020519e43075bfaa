"""LLVM IR as text: its tokens, types and debug metadata, and the spellings that differ between versions.

`text.read_module` returns a module cut into parts, `debuginfo.DebugInfo` its metadata, `typemap.TypeMap` the names of
what its instructions write.

Other rooms import `addresses`, `atomic_calls`, `debuginfo`, `layouts`, `text` and `typemap`.
"""
