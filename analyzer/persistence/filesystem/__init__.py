"""Models of file systems, for traces of system calls: of ext4, xfs, btrfs and `posix`, one file per model.

Each splits the calls into what persists apart (updates.py): data by block, sizes, names.
docs/file-systems.md has the rules.

Other rooms import `btrfs`, `ext4`, `ext4_strict`, `ext4_writeback`, `posix` and `xfs`.
"""
