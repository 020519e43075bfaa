"""Models of file systems, for traces of system calls: `ext4`, `ext4-strict` and `posix`, one file per model.

Each splits the calls into what persists apart (updates.py): data by block, sizes, names.
docs/system-calls.md has the rules.

Other rooms import `ext4`, `ext4_strict` and `posix`.
"""
