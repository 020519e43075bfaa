"""The compile server: LLVM loaded once, a forked child for each compiler command, ended after an idle time.

It listens on a socket that only its user can reach, holds no descriptor of its clients, and each child takes the
client's descriptors, environment, working directory and umask. What the clients and the server rely on:

1. The child answers its client itself, so a server that is killed fails nobody. A connection that ends without an
   answer means that nothing works for this client any more: it compiles in its own process.
2. A client that goes away ends its child, and nothing else: its connection is closed once, in `_gone`.
3. What fails for one client (no process, no descriptor left) drops that client only.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass, field

from crashcheck.analyzer.compile.driver.client import server_setting
from crashcheck.errors import CrashcheckError

IDLE_SECONDS = 600.0
_REQUEST_LIMIT = 64 << 20


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    data: bytearray = field(default_factory=bytearray)
    descriptors: list[int] = field(default_factory=list)
    gone: bool = False  # its connection is closed
    child: int = 0
    watch: int = -1  # pidfd of the child


class CompileServer:
    """Serves requests until no request came for `idle_s` seconds, or its socket was replaced."""

    def __init__(self, path: str, idle_s: float) -> None:
        self.path = path
        self.idle_s = idle_s
        self.selector = selectors.DefaultSelector()
        self.running = 0
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Only the holder of the lock file starts a server, so a socket that exists belongs to one that ended.
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        before = os.umask(0o177)
        self.listener.bind(path)
        os.umask(before)
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.identity = os.stat(path).st_ino
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def serve(self) -> None:
        while True:
            events = self.selector.select(self.idle_s)
            if not events and not self.running:
                break
            for key, _ in events:
                if key.data is None:
                    self._accept()
                elif isinstance(key.fileobj, int):
                    self._finished(key.data)
                elif not key.data.gone:  # what came earlier in this round may have closed it
                    self._readable(key.data)
            if not self._mine() and not self.running:
                return
        if self._mine():
            os.unlink(self.path)

    def _mine(self) -> bool:
        try:
            return os.stat(self.path).st_ino == self.identity
        except OSError:
            return False

    def _accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        self.selector.register(connection, selectors.EVENT_READ, _Client(connection))

    def _readable(self, client: _Client) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(client.connection, 1 << 20, 8)
        except OSError:
            data, descriptors = b"", []
        client.descriptors += descriptors
        if not data:
            self._gone(client)
            return
        if client.child:
            return  # one request for each connection
        client.data += data
        if len(client.data) < 8:
            return
        length = int.from_bytes(client.data[:8], "little")
        if length > _REQUEST_LIMIT:
            self._gone(client)
        elif len(client.data) - 8 >= length:
            try:
                self._start(client, bytes(client.data[8 : 8 + length]))
            except OSError:
                self._gone(client)

    def _start(self, client: _Client, request: bytes) -> None:
        if len(client.descriptors) != 3:
            self._gone(client)
            return
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                code = _serve_one(client.connection.fileno(), client.descriptors, request)
            except BaseException as error:
                if isinstance(error, SystemExit) and isinstance(error.code, int):
                    code = error.code
                else:
                    import traceback

                    traceback.print_exc()
                    sys.stderr.flush()
            finally:
                try:
                    os.write(_CONNECTION, str(code & 0xFF).encode())
                finally:
                    os._exit(code & 0xFF)
        try:
            os.setpgid(child, child)  # the child does it, too: whoever is first
        except OSError:
            pass  # it has ended
        client.child = child
        client.data.clear()
        try:
            client.watch = os.pidfd_open(child)
        except OSError:
            self._gone(client)
            os.waitpid(child, 0)
            return
        self.running += 1
        self.selector.register(client.watch, selectors.EVENT_READ, client)
        self._close_descriptors(client)

    def _finished(self, client: _Client) -> None:
        os.waitpid(client.child, 0)
        self.selector.unregister(client.watch)
        os.close(client.watch)
        self.running -= 1
        client.child, client.watch = 0, -1
        self._gone(client)

    def _gone(self, client: _Client) -> None:
        """The client hung up, or its child ended. May be called again."""
        self._close_descriptors(client)
        if client.gone:
            return
        client.gone = True
        self.selector.unregister(client.connection)
        client.connection.close()
        if client.child:
            try:
                os.killpg(client.child, signal.SIGTERM)
            except ProcessLookupError:
                pass

    def _close_descriptors(self, client: _Client) -> None:
        for descriptor in client.descriptors:
            os.close(descriptor)
        client.descriptors.clear()


_CONNECTION = 3  # where a child has its client's connection; what it forks keeps that open until it has ended


def _serve_one(connection: int, descriptors: list[int], request: bytes) -> int:
    """In the child: become the client's process as far as a compiler can see."""
    # Duplicates are above all that is replaced: a descriptor may be where another has to go.
    placed = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 64) for number in (*descriptors, connection)]
    for number, descriptor in enumerate(placed):
        os.dup2(descriptor, number, inheritable=number < _CONNECTION)
    os.closerange(_CONNECTION + 1, 4096)
    signal.signal(signal.SIGTERM, _end)  # not at once: folders in TMPDIR are removed first
    parts = request.split(b"\0")
    cxx, umask, folder, count = parts[0] == b"1", int(parts[1]), parts[2], int(parts[3])
    words = [os.fsdecode(word) for word in parts[4 : 4 + count]]
    os.environb.clear()
    for variable in parts[4 + count :]:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    os.umask(umask)
    os.chdir(folder)
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    from crashcheck.analyzer.compile.driver.wrapper import run

    return run(words, cxx)


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _stream(descriptor: int) -> io.TextIOWrapper:
    """Python's stream on a descriptor that has become the client's."""
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")


def main() -> int:
    """`python -m crashcheck.analyzer.compile.driver.compile_server SOCKET READY_FD`: detach, load LLVM, listen."""
    path, ready = sys.argv[1], int(sys.argv[2])
    if os.fork():
        return 0  # the starter must not wait for the server
    from crashcheck.analyzer.compile.driver import toolchain, wrapper  # noqa: F401 - loaded before the first client asks
    from crashcheck.analyzer.compile.instrument import unit

    unit.initialise()
    unit.warm_up()
    try:
        # Its own environment is that of its first client, and mostly that of all: children find the answers ready.
        toolchain.find_compiler().description()
        toolchain.runtime()
    except CrashcheckError:
        pass  # each client reports it
    gc.collect()
    gc.freeze()
    idle = server_setting("_IDLE_S", "")
    try:
        server = CompileServer(path, float(idle) if idle else IDLE_SECONDS)
    except (OSError, ValueError):
        return 1
    os.write(ready, b"1")
    os.close(ready)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
