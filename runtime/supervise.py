"""One command, run with address randomisation off, that leaves no descendant behind.

Run as a program or as a copy of a zygote (zygote.py), so that the caller needs no code between fork and exec and may
use threads. It reads a dict from standard input, in the format of `marshal`, which takes no time to import: `command`,
`env`, `folder`, where it runs, `timeout_s` (or None), `parent` (the process that asks), `keeps` and `descriptors` that
the command finds open (what it writes there is dropped). To a pipe, whose descriptor it is given, it writes (the disk
may be full by then): `exit_code` or `signal`, `timed_out`, `seconds`. Its output is the command's.
With `keeps`, what a command that ended by itself left running continues: a build may start a compile server.

Imported, it offers the same ending to other processes that run commands: `become_subreaper` before, `end_all` after.
It is started without site packages, so it imports nothing but the standard library, and little of that: a run starts
several supervisors, and most of the life of each is its start.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import time

TYPE_CHECKING = False  # typing's takes longer to import than all that is imported here
if TYPE_CHECKING:
    import signal
    from typing import Literal
else:
    import _signal as signal  # without enumerations of the numbers, which take a quarter of the start

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ADDR_NO_RANDOMIZE = 0x0040000
_NOT_RUN = 127  # the status of a command that could not be executed, as of a shell's
PERSONALITY_QUERY = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process, so that `end_all` finds them. Raises OSError."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def turn_randomisation_off() -> None:
    """Give the programs that this process executes the same addresses in each run."""
    _libc.personality(_libc.personality(PERSONALITY_QUERY) | ADDR_NO_RANDOMIZE)


def end_all(leader: int, spared: set[int] | None = None) -> tuple[int, resource.struct_rusage]:
    """Kill `leader`, a child not yet reaped, and all descendants but the children `spared`.

    Takes those that have ended out of `spared`. Returns the leader's wait status and its usage.

    The group is killed before the leader is reaped, so that its number cannot belong to others by then. A descendant
    with a group or session of its own is handed to us when its parent dies, and is killed then.
    """
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.kill(leader, signal.SIGKILL)  # it may have joined another group; a zombie takes no notice
    _, status, usage = os.wait4(leader, 0)
    end_rest(set() if spared is None else spared)
    return status, usage


def end_rest(spared: set[int]) -> None:
    """Kill and reap every child that is left but `spared`: killing one hands us its children."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            spared.clear()
            return
        if not pid:
            children = own_children()
            if spared and children is not None and spared == set(children):
                return
            others = [child for child in children or () if child not in spared]
            for child in others:
                try:
                    os.kill(child, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if children is None or others:  # else a child arrived or ended while the kernel wrote the list
                pid, _ = os.waitpid(-1, 0)
        spared.discard(pid)


def own_children() -> list[int] | None:
    """Return the children of this single-threaded process, or None where the kernel does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return None


def copied(orders: int, out: int, err: int, result: int) -> None:
    """As a copy of another process: read from `orders`, print to `out` and `err`, and write to `result`."""
    for number, source in enumerate((orders, out, err)):
        os.dup2(source, number)
        os.close(source)
    main(result)


def main(result: int) -> int:
    with open(0, "rb", closefd=False) as orders:
        order = marshal.load(orders)
    os.set_inheritable(result, False)
    os.chdir(order["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    become_subreaper()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != order["parent"]:
        return 1  # it died before it could be watched
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    started = time.monotonic()
    turn_randomisation_off()
    try:
        child = _spawned(order["command"], order["env"], order["descriptors"])
    except OSError as error:
        os.write(2, f"crashcheck: cannot run {order['command'][0]}: {error.strerror}\n".encode())
        why, status = "ended", _NOT_RUN << 8
    else:
        why = _wait(child, started, order["timeout_s"])
        status = os.waitpid(child, 0)[1] if why == "ended" and order["keeps"] else end_all(child)[0]
    seconds = time.monotonic() - started
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    outcome = {
        "exit_code": os.WEXITSTATUS(status) if why == "ended" and killed_by is None else None,
        "signal": {"ended": killed_by, "time": None, "stopped": int(signal.SIGKILL)}[why],
        "timed_out": why == "time",
        "seconds": seconds,
    }
    with open(result, "wb") as pipe:
        marshal.dump(outcome, pipe)
    return 0


def _spawned(command: list[str], env: dict[str, str], descriptors: list[int]) -> int:
    """Start a command as os.execvpe finds it, in a session of its own: without a copy of our memory. Raises OSError."""
    program, refused = command[0], None
    for path in [program] if "/" in program else [os.path.join(folder, program) for folder in os.get_exec_path(env)]:
        try:
            return os.posix_spawn(
                path,
                command,
                env,
                file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in descriptors],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE,),
            )
        except OSError as error:
            if refused is None or isinstance(refused, (FileNotFoundError, NotADirectoryError)):
                refused = error
    raise refused or FileNotFoundError(2, os.strerror(2))


def _wait(child: int, started: float, timeout_s: float | None) -> Literal["ended", "time", "stopped"]:
    """Wait until the command ends, its time is over, or a signal stops this process; reap other children only."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_pid == child:
            return "ended"
        if ended is not None:
            os.waitpid(ended.si_pid, 0)
            continue
        left = None if timeout_s is None else started + timeout_s - time.monotonic()
        if left is not None and left <= 0:
            return "time"
        events = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        event = signal.sigtimedwait(events, 3600.0 if left is None else left)
        if event is not None and event.si_signo != signal.SIGCHLD:
            return "stopped"
