"""`httrack_client.py SERVER`: asks HTTrack to mirror a page, and within 5 ms to continue; 1 if that ends it."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request


def main() -> int:
    chance = random.Random(int(os.environ["RUN"]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        server = subprocess.Popen(
            [sys.argv[1], "./", "--port", str(port)],
            env={**os.environ, "HOME": home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(port, server)
            start = {"path": home, "projname": "p", "winprofile": "w", "command_do": "start"}
            _post(port, {**start, "command": f"httrack http://127.0.0.1:{port}/none -O {home}/p -r1 -q"})
            time.sleep(chance.uniform(0, 0.005))
            _post(port, {"command": "unpause"})
            time.sleep(0.1)
            return int(server.poll() is not None)
        finally:
            server.kill()
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)


def _post(port: int, values: dict[str, str]) -> None:
    body = urllib.parse.urlencode(values).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", body, timeout=20) as answer:
            answer.read()
    except (OSError, urllib.error.URLError):
        pass  # what counts is whether the server is still there


sys.exit(main())
