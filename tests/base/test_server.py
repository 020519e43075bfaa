"""A server as a check: one shell command that starts, asks and stops it, and ends as the client did."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck import config, ports
from crashcheck.command import Command
from crashcheck.config.server import server_command
from crashcheck.errors import CrashcheckError
from support.command_line import run_crashcheck

# Sends what the file holds to whoever connects; ends at "stop", and dies at "die".
_SERVER = """
import os, signal, socket, sys
port, file = int(sys.argv[1]), sys.argv[2]
text = open(file).read()
print("serving", text, flush=True)
listener = socket.create_server(("127.0.0.1", port))
while True:
    peer, _ = listener.accept()
    word = peer.recv(100)
    if word == b"stop":
        sys.exit()
    if word == b"die":
        os.kill(os.getpid(), signal.SIGSEGV)
    peer.sendall(text.encode())
    peer.close()
"""
_CLIENT = """
import socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
peer.sendall(sys.argv[2].encode())
print(peer.recv(100).decode())
"""
_PYTHON = f"{sys.executable} -IS"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(_SERVER)
    (tmp_path / "client.py").write_text(_CLIENT)
    (tmp_path / "file").write_text("hello")
    return tmp_path


def command(client: str = "", stop: str | None = "", start: str = "") -> Command:
    ask = f"{_PYTHON} client.py {{port}}"
    return server_command(
        Command.of_text(start or f"{_PYTHON} server.py {{port}} file"),
        Command.of_text(f"{ask} ready"),
        Command.of_text(client or f"{ask} text"),
        None if stop is None else Command.of_text(stop or f"{ask} stop"),
    )


def run(command: Command, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command.argv(**ports.of(command)), cwd=folder, capture_output=True, text=True, check=False)


def test_the_clients_output_and_status_are_those_of_the_check_and_the_servers_output_is_apart(folder: Path) -> None:
    done = run(command(), folder)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "serving hello" in done.stderr


def test_a_client_that_fails_or_exits_early_fails_the_check_and_the_server_is_stopped(folder: Path) -> None:
    assert run(command("echo lost; exit 7"), folder).returncode == 7
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", ports.own_port()))


def test_a_server_that_refuses_the_files_fails_the_check_with_its_own_words(folder: Path) -> None:
    (folder / "file").unlink()
    done = run(command(), folder)
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr
    assert done.stderr.endswith("The server ended with status 1 before it was ready.\n")


def test_a_server_that_goes_to_the_background_fails_with_a_hint(folder: Path) -> None:
    done = run(command(start="true"), folder)
    assert done.returncode == 1
    assert done.stderr.endswith("start must keep it in the foreground.\n")


def test_a_server_that_dies_after_a_client_that_is_content_fails_the_check(folder: Path) -> None:
    done = run(command(stop=f"{_PYTHON} client.py {{port}} die"), folder)
    assert done.returncode == 1
    assert done.stderr.endswith("The server was ended by signal 11.\n")


@pytest.mark.parametrize("stop", [None, "false"])
def test_a_server_without_a_stop_command_or_with_one_that_fails_gets_sigterm(folder: Path, stop: str | None) -> None:
    assert run(command(stop=stop), folder).returncode == 0


def test_each_part_may_be_a_shell_command_with_a_comment_at_its_end(folder: Path) -> None:
    start = f"cd . && exec {_PYTHON} server.py {{port}} file # in the foreground"
    done = run(command("true # nothing to ask", None, start), folder)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_port_is_kept_by_its_process_differs_from_another_process_and_is_left_to_who_listens_there() -> None:
    mine = ports.own_port()
    assert ports.own_port() == mine
    program = "from crashcheck import ports; print(ports.own_port())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert int(other.stdout) != mine
    with socket.create_server(("127.0.0.1", mine)):
        assert ports.own_port() != mine


_CONFIG = """
[workload]
command = "./program"
[pool]
files = ["*"]
[check]
"""


@pytest.mark.parametrize(
    ("keys", "slug", "text"),
    [
        ('start = "s"\nclient = "c"', "config-required", "[check] ready is missing"),
        ('ready = "r"\nclient = "c"', "config-required", "[check] start is missing"),
        ('stop = "s"', "config-required", "[check] start is missing"),
        ('start = "s"\ncommand = "c"', "config-value", "[check] command and [check] start exclude one another"),
        ('start = "s {prot}"\nready = "r"\nclient = "c"', "config-placeholder", "{prot} is not a placeholder"),
    ],
)
def test_an_incomplete_or_contradictory_server_is_refused(keys: str, slug: str, text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        config.parse(_CONFIG + keys, Path("/project/crashcheck.toml"))
    assert caught.value.slug == slug
    assert text in str(caught.value)


@pytest.mark.parametrize(("sync", "status"), [("", 1), ("sync new;", 0)])
def test_a_run_whose_check_is_a_server_finds_a_rename_before_its_bytes(
    folder: Path, environment: dict[str, str], sync: str, status: int
) -> None:
    (folder / "crashcheck.toml").write_text(f"""
[setup]
command = "printf old1 > {{pool}}/data"
[workload]
recorder = "syscalls"
command = "cd {{pool}}; printf new2 > new; {sync} mv new data"
[pool]
files = ["*"]
[check]
start = "{_PYTHON} server.py {{port}} {{pool}}/data"
ready = "{_PYTHON} client.py {{port}} ready"
client = "{_PYTHON} client.py {{port}} text | grep -qx 'old1\\\\|new2'"
[model]
name = "posix"
""")
    done = run_crashcheck("run", "--no-fixes", cwd=folder, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
