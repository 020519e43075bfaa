"""A bug of a server's threads, which only `threads = "explore"` finds."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import compilers
from support.command_line import run_crashcheck

SOURCE = Path(__file__).parent / "nodes" / "queue.c"
NODES = """
[[node]]
name = "server"
command = "./queue {{index}}"
ends = true
threads = "{threads}"
[[node]]
name = "client"
command = "./queue {{index}}"
[strategy]
name = "{strategy}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    command = [*compilers.c_compiler(), "-O0", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", str(SOURCE)]
    subprocess.run([*command, "-o", str(tmp_path / "queue")], check=True)
    return tmp_path


def run(project: Path, threads: str, strategy: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON report and what was printed."""
    (project / "crashcheck.toml").write_text(NODES.format(threads=threads, strategy=strategy))
    formats = ("--format", "json=report.json", "--format", "terminal", "--format", "html=report.html")
    ended = run_crashcheck("run", *formats, cwd=project, env=os.environ)
    report = project / "report.json"
    return ended.returncode, json.loads(report.read_text()) if report.exists() else {}, ended.stdout + ended.stderr


def test_an_order_of_threads_is_found_minimised_named_and_replayed(project: Path) -> None:
    code, report, printed = run(project, "explore", "dpor")
    assert code == 1, printed
    (finding,) = report["findings"]
    assert finding["message"] == (
        "server is ended by SIGABRT if thread 3 'answer' of server (wait_turn at queue.c:18, from answer at "
        "queue.c:31) continues before thread 2 of server"
    )
    assert (finding["location"]["function"], finding["location"]["line"]) == ("wait_turn", 18)
    threads = [row["what"] for row in finding["evidence"]["rows"] if row["kind"] == "thread"]
    assert [what.partition(" (")[0] for what in threads] == [
        "thread 2 'queue' of server continues",  # it has just begun
        "thread 3 'queue' of server continues",
        "thread 3 'answer' of server",
    ]
    assert "thread 3 &#39;queue&#39;</text>" in (project / "report.html").read_text()
    replays = [run_crashcheck("replay", finding["replay"], cwd=project, env=os.environ) for _ in range(10)]
    assert [each.returncode for each in replays] == [1] * 10
    assert {each.stdout for each in replays} == {replays[0].stdout}


def test_all_orders_are_as_many_with_dfs_as_with_dpor_for_one_node(project: Path) -> None:
    counts = [run(project, "explore", strategy)[1]["run"]["states"] for strategy in ("dfs", "dpor")]
    assert all(count["feasible_exact"] for count in counts)
    assert counts[0]["executed"] == counts[1]["executed"] > 20
    assert counts[0]["failing"] == counts[1]["failing"] > 0


def test_with_the_first_thread_always_it_is_not_found(project: Path) -> None:
    code, report, printed = run(project, "first", "dfs")
    assert (code, report["findings"], report["run"]["states"]["executed"]) == (0, [], 1), printed


def test_what_threads_may_be_is_named(project: Path) -> None:
    code, _, printed = run(project, "all", "dfs")
    assert code == 2
    assert "threads" in printed
    assert "explore" in printed
