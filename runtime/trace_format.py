"""The trace file's layout as Python sees it: a mirror of runtime/include/trace_format.h.

A test compiles the header and compares every size, offset and value with this module.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

MAGIC = b"CRSHTRC\n"
VERSION = 8
HEADER_BYTES = 4096
CHUNK_BYTES = 256 * 1024
CHUNK_HEADER_BYTES = 64
EVENT_BYTES = 56
NO_INSTANCE = 0xFFFFFFFF
OUTPUT_BYTES = 256
SYNC_FAILED = 1  # in the flags of a SYNC_END
INLINE_BYTES = 8  # payloads up to this size are in the record itself

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("chunk_bytes", "<u4"),
        ("event_bytes", "<u4"),
        ("next_seq", "<u8"),
        ("next_chunk", "<u8"),
        ("next_site", "<u4"),
        ("next_stack", "<u4"),
        ("next_thread", "<u4"),
        ("next_file", "<u4"),
        ("status", "<u4"),
        ("main_pid", "<u4"),
        ("next_operation", "<u4"),
        ("program", "<u4"),
        ("output_bytes", "<u8"),
        ("sole", "<u4"),
        ("numbering", "<u4"),
        ("next_load_site", "<u4"),
        ("next_load_stack", "<u4"),
        ("next_load_thread", "<u4"),
        ("checksum", "<u4"),
        ("recorder", "<u4"),
        ("spare", "<u4"),
    ]
)

CHUNK_HEADER = np.dtype(
    [
        ("kind", "<u4"),
        ("thread", "<u4"),
        ("pid", "<u4"),
        ("chunks", "<u4"),
        ("used_bytes", "<u8"),
    ]
)

RECORD = np.dtype(
    [
        ("seq", "<u8"),
        ("offset", "<u8"),
        ("size", "<u4"),
        ("site", "<u4"),
        ("stack", "<u4"),
        ("instance_delta", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("call", "<u2"),
        ("file", "<u4"),
        ("aux", "<u4"),
        ("folder", "<u4"),
        ("payload", "<u8"),
    ]
)

NAMES = np.dtype([("to_folder", "<u4"), ("replaced", "<u4"), ("name_bytes", "<u4")])

CODE = np.dtype([("version", "<u4"), ("first_line", "<u4"), ("file_bytes", "<u4"), ("name_bytes", "<u4")])

# A record together with the chunk it was found in.
EVENT = np.dtype([*((name, RECORD[name]) for name in RECORD.names or ()), ("thread", "<u4"), ("pid", "<u4")])


class Status(IntFlag):
    CLEAN_EXIT = 1
    DISK_FULL = 2
    TOO_MANY = 4
    SEALED = 8


class Recorder(IntEnum):
    LINKED = 0
    SYSCALLS = 1


class ChunkKind(IntEnum):
    FREE = 0
    EVENTS = 1
    BLOB = 2
    LOADS = 3


class Kind(IntEnum):
    STORE = 1
    WRITE = 2
    TRUNCATE = 3
    CREATE = 4
    FLUSH = 5
    FENCE = 6
    SYNC_BEGIN = 7
    SYNC_END = 8
    MARK_BEGIN = 9
    MARK_END = 10
    OUTPUT = 11
    LOAD = 12
    LOAD_GAP = 15
    FILE_DEF = 16
    UNIT_DEF = 17
    STACK_DEF = 18
    THREAD_START = 19
    MAP = 20
    UNMAP = 21
    FORK = 22
    EXEC = 23
    DLOPEN = 24
    EXIT = 25
    UNMODELLED = 26
    UNLINK = 27
    RENAME = 28
    CONTENT = 29
    INODE_DEF = 30
    NAME_CREATE = 31
    NAME_LINK = 32
    NAME_UNLINK = 33
    NAME_MKDIR = 34
    NAME_RMDIR = 35
    NAME_SYMLINK = 36
    NAME_RENAME = 37
    NAME_EXCHANGE = 38
    ALLOCATE = 39
    MODULE_DEF = 40
    SITE_DEF = 41
    FAULT = 42
    WRITE_END = 43
    CODE_DEF = 44


NAME_KINDS = (
    Kind.NAME_CREATE,
    Kind.NAME_LINK,
    Kind.NAME_UNLINK,
    Kind.NAME_MKDIR,
    Kind.NAME_RMDIR,
    Kind.NAME_SYMLINK,
    Kind.NAME_RENAME,
    Kind.NAME_EXCHANGE,
)

# Kinds whose `size` counts bytes found at `payload`; of the others `size` is a range and `payload` a number.
PAYLOAD_KINDS = (
    Kind.STORE,
    Kind.WRITE,
    Kind.FILE_DEF,
    Kind.UNIT_DEF,
    Kind.MAP,
    Kind.UNMAP,
    Kind.EXEC,
    Kind.DLOPEN,
    Kind.UNMODELLED,
    Kind.CONTENT,
    Kind.OUTPUT,
    Kind.INODE_DEF,
    Kind.MODULE_DEF,
    Kind.FAULT,
    Kind.CODE_DEF,
    *NAME_KINDS,
)


class InodeFlag(IntFlag):
    EXISTED = 1
    DENSE = 2


class SiteFlag(IntFlag):
    IN_CODE = 1


class CreateFlag(IntFlag):
    EXCLUSIVE = 1


class StoreFlag(IntFlag):
    NT = 1
    ATOMIC = 2
    BULK = 4
    LIBRARY = 8
    VOLATILE = 16
    JOINED = 32
    COMPARED = 64


class WriteFlag(IntFlag):
    APPEND = 1
    DIRECT = 2
    JOINED = 4
    PENDING = 8


class OutputKind(IntEnum):
    STDOUT = 0
    STDERR = 1
    TERMINAL = 2
    PIPE = 3
    SOCKET = 4
    NAME = 5


class FlushKind(IntEnum):
    CLFLUSH = 1
    CLFLUSHOPT = 2
    CLWB = 3


class FenceKind(IntEnum):
    SFENCE = 1
    MFENCE = 2
    LOCKED = 3
    DRAIN = 4


class SyncKind(IntEnum):
    MSYNC = 1
    MSYNC_ASYNC = 2
    FSYNC = 3
    FDATASYNC = 4
    SYNC = 5
    OSYNC = 6
    ODSYNC = 7
    SYNC_RANGE = 8
    DIRSYNC = 9


class MapFlag(IntFlag):
    SHARED = 1
    WRITE = 2


def text_hash(text: bytes) -> int:
    """How the recorder hashes names (raw_hash): 64-bit FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value
