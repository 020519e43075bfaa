"""The compile server does what the compiler in one process does, and gets out of the way."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.compilers import needs_plain_clang

SOURCE = "#include <stdio.h>\nint main(void) { puts(GREETING); return 0; }\n"


SERVER = b"crashcheck.analyzer.compile.driver.compile_server"


@pytest.fixture
def home(tmp_path: Path, environment: dict[str, str], stub: Path) -> Iterator[dict[str, str]]:
    """An environment whose compile server is this test's own; it is ended afterwards."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    (tmp_path / "a.c").write_text(SOURCE)
    yield {
        **environment,
        "XDG_RUNTIME_DIR": str(runtime),
        "CRASHCHECK_RUNTIME": str(stub),
        "CRASHCHECK_COMPILE_SERVER_IDLE_S": "30",
    }
    for process in servers(runtime):
        os.kill(process, signal.SIGTERM)


def servers(runtime: Path) -> list[int]:
    """The servers of a runtime folder: not their children, each a process group of its own, which have answered a
    moment before they end, and may outlive a server that is killed."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                _, _, group, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if SERVER in words and any(os.fsencode(str(runtime)) in word for word in words) and group == session:
                found.append(int(entry.name))
    return found


def compile_with(home: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["crashcheck-cc", *words], cwd=folder, env=home, capture_output=True, text=True, check=False)


def test_one_server_answers_calls_with_their_own_folder_and_environment(tmp_path: Path, home: dict[str, str]) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.c").write_text(SOURCE)
        extra = {"CPATH": str(folder)}
        (folder / "greet.h").write_text(f'#define GREETING "{name}"\n')
        done = compile_with({**home, **extra}, folder, "-include", "greet.h", "a.c", "-o", "a")
        assert (done.returncode, done.stderr) == (0, "")
        assert subprocess.run([folder / "a"], capture_output=True, text=True, check=True).stdout == name + "\n"
    assert len(servers(tmp_path / "run")) == 1


def test_a_call_with_another_priority_has_a_server_of_its_own(tmp_path: Path, home: dict[str, str]) -> None:
    for start in (["nice", "-n", "3"], []):
        words = [*start, "crashcheck-cc", '-DGREETING="a"', "-c", "a.c"]
        subprocess.run(words, cwd=tmp_path, env=home, check=True)
    priorities = [os.getpriority(os.PRIO_PROCESS, process) for process in servers(tmp_path / "run")]
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert sorted(priorities) == sorted({mine, min(mine + 3, 19)})


def test_errors_and_exit_codes_reach_the_caller(tmp_path: Path, home: dict[str, str]) -> None:
    done = compile_with(home, tmp_path, "-c", "a.c")
    assert done.returncode == 1
    assert "use of undeclared identifier 'GREETING'" in done.stderr


def test_a_stale_socket_is_replaced(tmp_path: Path, home: dict[str, str]) -> None:
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    (server,) = servers(tmp_path / "run")
    os.kill(server, signal.SIGKILL)
    descriptor = os.pidfd_open(server) if server in servers(tmp_path / "run") else -1
    if descriptor >= 0:
        select.select([descriptor], [], [], 30)
        os.close(descriptor)
    done = compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c")
    assert (done.returncode, done.stderr) == (0, "")
    assert server not in servers(tmp_path / "run")


WAITING = '#include "pipe.h"\n' + SOURCE


class Waiting:
    """A compilation that waits for its header: a pipe. Once `opened`, clang is reading it."""

    def __init__(self, home: dict[str, str], folder: Path) -> None:
        needs_plain_clang()  # the wheel's opens each header again, to keep what it compiled
        self.pipe = folder / "pipe.h"
        os.mkfifo(self.pipe)
        (folder / "waiting.c").write_text(WAITING)
        (folder / "temporary").mkdir()
        self.temporary = folder / "temporary"
        words = ["crashcheck-cc", "-c", "waiting.c", "-o", "waiting.o"]
        environment = {**home, "TMPDIR": str(self.temporary)}
        self.client = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.header = os.open(self.pipe, os.O_WRONLY)

    def finish(self) -> tuple[int, str]:
        """Let it continue; its exit code and what it printed."""
        os.write(self.header, b'#define GREETING "late"\n')
        os.close(self.header)
        _, errors = self.client.communicate()
        return self.client.returncode, errors


def the_server(home: dict[str, str]) -> int:
    (server,) = servers(Path(home["XDG_RUNTIME_DIR"]))
    return server


def the_child(server: int) -> int:
    (child,) = (int(word) for word in Path(f"/proc/{server}/task/{server}/children").read_text().split())
    return child


def end(process: int) -> None:
    """Kill a process and wait until it has ended."""
    watch = os.pidfd_open(process)
    os.kill(process, signal.SIGKILL)
    select.select([watch], [], [])
    os.close(watch)


def test_a_killed_client_takes_its_own_compilation_along_and_no_other(tmp_path: Path, home: dict[str, str]) -> None:
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    server = the_server(home)
    folders = [tmp_path / "killed", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    killed = Waiting(home, folders[0])
    child = os.pidfd_open(the_child(server))
    other = Waiting(home, folders[1])
    end(killed.client.pid)
    select.select([child], [], [])
    os.close(child)
    os.close(killed.header)
    killed.client.communicate()
    assert list(killed.temporary.iterdir()) == []
    assert other.finish() == (0, "")
    assert the_server(home) == server
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0


def test_a_killed_server_fails_no_compilation(tmp_path: Path, home: dict[str, str]) -> None:
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    server = the_server(home)
    waiting = Waiting(home, tmp_path)
    end(server)
    assert waiting.finish() == (0, "")
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    assert the_server(home) != server


def test_a_compilation_whose_process_is_killed_is_done_by_the_client(tmp_path: Path, home: dict[str, str]) -> None:
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    server = the_server(home)
    waiting = Waiting(home, tmp_path)
    child = the_child(server)
    (clang,) = (int(word) for word in Path(f"/proc/{child}/task/{child}/children").read_text().split())
    end(child)
    end(clang)
    os.close(waiting.header)
    waiting.header = os.open(waiting.pipe, os.O_WRONLY)
    assert waiting.finish() == (0, "")
    assert (tmp_path / "waiting.o").exists()
    assert the_server(home) == server


def test_without_a_safe_folder_the_compiler_works_alone(tmp_path: Path, home: dict[str, str]) -> None:
    folder = tmp_path / "run" / f"crashcheck-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    assert list(folder.iterdir()) == []
    assert servers(tmp_path / "run") == []


def test_the_server_can_be_switched_off(tmp_path: Path, home: dict[str, str]) -> None:
    done = compile_with({**home, "CRASHCHECK_COMPILE_SERVER": "0"}, tmp_path, '-DGREETING="x"', "-c", "a.c")
    assert done.returncode == 0
    assert servers(tmp_path / "run") == []


def test_the_server_ends_after_its_idle_time_and_takes_its_socket_along(tmp_path: Path, home: dict[str, str]) -> None:
    runtime = tmp_path / "run"
    assert (
        compile_with(
            {**home, "CRASHCHECK_COMPILE_SERVER_IDLE_S": "0.5"}, tmp_path, '-DGREETING="x"', "-c", "a.c"
        ).returncode
        == 0
    )
    for process in servers(runtime):
        descriptor = os.pidfd_open(process)
        select.select([descriptor], [], [], 60)
        os.close(descriptor)
    assert servers(runtime) == []
    assert [path for path in (runtime / f"crashcheck-{os.getuid()}").iterdir() if path.suffix != ".lock"] == []


def test_nonsense_on_the_socket_disturbs_nobody(tmp_path: Path, home: dict[str, str]) -> None:
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    (path,) = [item for item in (tmp_path / "run" / f"crashcheck-{os.getuid()}").iterdir() if item.suffix != ".lock"]
    for data in (b"", b"\xff" * 100, (5).to_bytes(8, "little") + b"hello"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(data)
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    assert len(servers(tmp_path / "run")) == 1


def test_standard_input_is_the_clients(tmp_path: Path, home: dict[str, str]) -> None:
    done = subprocess.run(
        ["crashcheck-cc", "-x", "c", "-", '-DGREETING="in"', "-o", "b"],
        input=SOURCE,
        cwd=tmp_path,
        env=home,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert subprocess.run([tmp_path / "b"], capture_output=True, text=True, check=True).stdout == "in\n"


def test_the_socket_is_its_users_alone(tmp_path: Path, home: dict[str, str]) -> None:
    assert compile_with(home, tmp_path, '-DGREETING="x"', "-c", "a.c").returncode == 0
    folder = tmp_path / "run" / f"crashcheck-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
