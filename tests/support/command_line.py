"""`crashcheck` in a process of its own, forked from one that has imported it: that saves most of a short run.

It is for tests of what a subcommand does. Those of the process itself (its start, signals, encodings) start the command
of the fixture `commands`. With PYTHONHASHSEED in the environment it is started, too: what is forked has the hashes of
its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"
_LOCK = threading.Lock()


def run_crashcheck(
    *words: str | Path, cwd: Path, env: Mapping[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `crashcheck WORDS...` in `cwd` with the environment `env` and `given` as its input."""
    command = [str(word) for word in words]
    if "PYTHONHASHSEED" in env:  # that decides how the interpreter starts
        return subprocess.run(["crashcheck", *command], cwd=cwd, env=env, input=given, capture_output=True, text=True)
    order = json.dumps([command, str(cwd), dict(env)]).encode()
    ended, result = os.pipe()
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given.encode("utf-8"))
        stdin.seek(0)
        with _LOCK:
            socket.send_fds(_server(), [order], [stdin.fileno(), stdout.fileno(), stderr.fileno(), result])
        os.close(result)
        with open(ended, "rb", buffering=0) as pipe:
            status = int(pipe.read(16))  # not up to the end, which a command that started later may keep open
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode("utf-8"))
    return subprocess.CompletedProcess(["crashcheck", *command], os.waitstatus_to_exitcode(status), *texts)


@functools.cache
def _server() -> socket.socket:
    """Our end of the channel to the process that forks; it ends when the channel is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    atexit.register(process.wait)
    atexit.register(ours.close)  # the last that is registered is called first
    return ours


def _serve(channel: socket.socket) -> None:
    sys.path.insert(0, str(SOURCES))
    import crashcheck
    from crashcheck.checker.kept import keys
    from crashcheck.errors import CrashcheckError
    from crashcheck.runtime import build

    for module in pkgutil.walk_packages(crashcheck.__path__, "crashcheck."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    importlib.import_module("numpy.ma")  # by numpy when a run first needs it
    keys.sources()  # once for all commands, as the names of what was compiled
    with contextlib.suppress(CrashcheckError):
        build.is_built()
    gc.collect()
    gc.freeze()
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fileobj)
                    _report(*key.data)
                elif not _start(channel, selector):
                    return


def _start(channel: socket.socket, selector: selectors.BaseSelector) -> bool:
    """Start the next command; False: there will be none."""
    order, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 4)
    if not order:
        return False
    child = os.fork()
    if child == 0:
        _become(order, descriptors)
    *streams, result = descriptors
    for number in streams:
        os.close(number)
    ended = os.pidfd_open(child)
    selector.register(ended, selectors.EVENT_READ, (child, ended, result))
    return True


def _report(child: int, ended: int, result: int) -> None:
    """Write how a command ended to where it is awaited."""
    _, status = os.waitpid(child, 0)
    os.write(result, str(status).encode())
    os.close(ended)
    os.close(result)


def _become(order: bytes, descriptors: list[int]) -> None:
    from crashcheck.cli import main

    code = 2
    try:
        words, folder, environment = json.loads(order)
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        os.closerange(3, 4096)  # those of commands that are still running, too
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["crashcheck", *words]
        code = main(words)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
