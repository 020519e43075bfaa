"""Copies of this process by fork: what the copy has to do before it may call what its parent would have called."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import sys
import warnings

from crashcheck.runtime.supervise import PR_SET_PDEATHSIG

_libc = ctypes.CDLL(None, use_errno=True)


def fork() -> int:
    """As os.fork, without a warning of other threads: whoever calls this has thought of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def end_with_parent() -> None:
    """Let the kernel end this process when its parent ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def use_streams(out: int, err: int) -> None:
    """Let this process print to descriptors, each line at once, and read nothing."""
    null = os.open(os.devnull, os.O_RDONLY)
    for number, source in ((0, null), (1, out), (2, err)):
        os.dup2(source, number)
    if null > 2:
        os.close(null)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = open(number, "wb", closefd=False)  # noqa: SIM115
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True))
