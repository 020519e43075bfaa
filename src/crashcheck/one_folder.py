"""Gives one folder to a check that can be given many, and ends as that check judges it.

A check whose command holds `{folders}` reads lines `FOLDER<tab>ACKED<tab>STDOUT` from its standard input, one that
holds `{states}` (of nodes) lines `FOLDER`. It answers each with a line `ok FOLDER` or `fail FOLDER WHY` on its standard
output, and ends when its input does.

Run as a program, with the words of a line, `--` and the check's own, this is a check of that one folder: exit status 0
for `ok`, 1 for `fail` or for anything else than one answer, and the status or signal of a check that fails itself.

It is started without site packages, so it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

TYPE_CHECKING = False  # typing's takes longer to import than all that is imported here
if TYPE_CHECKING:
    from collections.abc import Sequence

_END = "--"  # of the words of a line
_PROGRAM = (sys.executable, "-I", "-S", os.path.abspath(__file__))
COMMAND = (*_PROGRAM, "{pool}", "{acked}", "{stdout}", _END)
STATE_COMMAND = (*_PROGRAM, "{state}", _END)
FOLDERS = "/dev/stdin"  # what {folders} and {states} are replaced by


def parts_of(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What one of these commands gives a check, the folder first, and the check's own words."""
    end = words.index(_END, len(_PROGRAM) + 1)
    return list(words[len(_PROGRAM) : end]), list(words[end + 1 :])


def line_of(given: Sequence[str]) -> bytes:
    """The line that gives a folder to a check."""
    return os.fsencode("\t".join(given) + "\n")


class Answers:
    """What a check prints on its standard output while it is given one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = os.fsencode(folder)
        self._part = b""  # of a line
        self.given: list[tuple[bool, bytes]] = []  # the answers for this folder: whether it passes, and why not

    def add(self, printed: bytes) -> bytes:
        """Take what was printed. Returns what of it is no answer, and no part of a line that may be one."""
        *lines, self._part = (self._part + printed).split(b"\n")
        return b"".join(line + b"\n" for line in lines if not self._take(line.rstrip(b"\r")))

    def end(self) -> bytes:
        """Nothing else was printed: what is left, as `add` returns it. An answer is a whole line."""
        rest, self._part = self._part, b""
        return rest

    def _take(self, line: bytes) -> bool:
        word, _, rest = line.partition(b" ")
        if word not in (b"ok", b"fail") or not rest.startswith(self._folder):
            return False
        why = rest[len(self._folder) :]
        if why[:1].strip() or (word == b"ok" and why.strip()):
            return False
        self.given.append((word == b"ok", why.strip()))
        return True


def main() -> int:
    line, command = parts_of([*_PROGRAM, *sys.argv[1:]])
    folder = line[0]
    given, give = os.pipe()
    read, write = os.pipe()
    try:
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, write, 1)],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT],  # Python has changed these
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    os.close(given)
    os.close(write)
    with contextlib.suppress(BrokenPipeError):  # it has ended without asking
        os.write(give, line_of(line))
    os.close(give)
    answers = _answers(folder, pid, read)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        if os.WTERMSIG(status) not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    if status:
        return os.WEXITSTATUS(status)
    if len(answers.given) == 1:
        return 0 if answers.given[0][0] else 1
    how_many = f"gave {len(answers.given)} answers for one folder" if answers.given else "gave no answer"
    _show(f'The check {how_many}: it must print one line "ok FOLDER" or "fail FOLDER WHY", and flush it.\n'.encode())
    return 1


def _answers(folder: str, pid: int, read: int) -> Answers:
    """Wait until the check ends, and show what it prints: what it leaves running may keep its output open."""
    answers = Answers(folder)
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(read, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    os.set_blocking(read, False)
    has_ended = False
    while not has_ended:
        has_ended = pidfd in [fd for fd, _ in poll.poll()]
        while data := read_available(read):
            before = len(answers.given)
            _show(answers.add(data))
            for passed, why in answers.given[before:]:
                _show(b"ok\n" if passed else (why or b"fail") + b"\n")
        if data == b"":
            poll.unregister(read)  # closed: there is nothing more to come
            os.close(read)
            if not has_ended:
                poll.poll()
            break
    _show(answers.end())
    return answers


def read_available(fd: int) -> bytes | None:
    """What has arrived on a descriptor that does not block; empty if it was closed, None if nothing is there."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return None


def _show(text: bytes) -> None:
    while text:
        text = text[os.write(1, text) :]


if __name__ == "__main__":
    sys.exit(main())
