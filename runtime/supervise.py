"""Runs one command with address randomisation off and leaves no descendant of it behind.

Run as a program of its own, so that the caller needs no fork-time code and may use threads. It is the
subreaper of all that the command starts: what outlives the command, or a time-out, is killed.
It reads one JSON object from standard input: `command`, `env`, `timeout_s` (or null) and `result`, the descriptor of
a pipe that it writes to (the disk may be full by then): `exit_code` or `signal`, `timed_out`, `seconds`. Its output is
the command's.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ADDR_NO_RANDOMIZE = 0x0040000


def main() -> int:
    order = json.load(sys.stdin)
    os.set_inheritable(order["result"], False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(libc, order["command"], order["env"])
    outcome = _wait(child, started, order["timeout_s"])
    outcome["seconds"] = time.monotonic() - started
    _kill_descendants(child)
    with open(order["result"], "w", encoding="utf-8") as pipe:
        json.dump(outcome, pipe)
    return 0


def _become(libc: ctypes.CDLL, command: list[str], env: dict[str, str]) -> None:
    try:
        os.setsid()
        libc.personality(ADDR_NO_RANDOMIZE | libc.personality(0xFFFFFFFF))
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvpe(command[0], command, env)
    except OSError as error:
        os.write(2, f"crashcheck: cannot run {command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _wait(child: int, started: float, timeout_s: float | None) -> dict[str, object]:
    """Until the command ends, its time is over, or this process is told to stop."""
    while True:
        done, status = os.waitpid(-1, os.WNOHANG)
        if done == child:
            ended = os.WIFSIGNALED(status)
            return {
                "exit_code": None if ended else os.WEXITSTATUS(status),
                "signal": os.WTERMSIG(status) if ended else None,
                "timed_out": False,
            }
        if done:
            continue
        left = None if timeout_s is None else started + timeout_s - time.monotonic()
        if left is not None and left <= 0:
            return {"exit_code": None, "signal": None, "timed_out": True}
        events = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        event = signal.sigtimedwait(events, 3600.0 if left is None else left)
        if event is not None and event.si_signo != signal.SIGCHLD:
            return {"exit_code": None, "signal": int(signal.SIGKILL), "timed_out": False}


def _kill_descendants(group: int) -> None:
    while True:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for pid in _children(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            found = [int(word) for word in file.read().split()]
    except OSError:
        pass
    return found


if __name__ == "__main__":
    sys.exit(main())
