"""Time-outs that are only comparisons of times: found in programs that crashcheck-cc built (MODIST 3.4)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crashcheck.analyzer.compile.driver import wrapper
from support import compilers
from support.command_line import run_crashcheck

SOURCES = [str(Path(__file__).parent / "nodes" / name) for name in ("lease.c", "lease_clock.c")]
NODES = """
[[node]]
name = "grantor"
command = "./lease {{index}} {{peers}} 1"
[[node]]
name = "holder"
command = "./lease {{index}} {{peers}} 1"
count = 2
[time]
clock_error = "{error}"
[strategy]
name = "{strategy}"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lease, as crashcheck-cc builds it and as another compiler does."""
    folder = tmp_path_factory.mktemp("lease")
    assert wrapper.run(["-O1", "-g", *SOURCES, "-o", str(folder / "analysed")], cxx=False) == 0
    subprocess.run([*compilers.c_compiler(), "-O1", *SOURCES, "-o", str(folder / "plain")], check=True)
    return folder


@pytest.fixture
def run(programs: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The JSON report of a run of a lease of 1 s."""

    def reported(program: str, error: str, strategy: str = "dpor", *options: str) -> dict[str, Any]:
        (tmp_path / "lease").unlink(missing_ok=True)
        os.link(programs / program, tmp_path / "lease")
        (tmp_path / "crashcheck.toml").write_text(NODES.format(error=error, strategy=strategy))
        ended = run_crashcheck("run", "--format", "json=report.json", *options, cwd=tmp_path, env=os.environ)
        assert ended.returncode in (0, 1), ended.stderr
        return json.loads((tmp_path / "report.json").read_text())  # type: ignore[no-any-return]

    return reported


def test_a_lease_is_kept_by_clocks_without_error_and_not_by_clocks_with_2_s(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    exact = run("analysed", "0s")
    assert (exact["findings"], exact["run"]["stop_reason"]) == ([], "exhausted")
    assert exact["run"]["states"]["executed"] > 2  # time passes in some
    (finding,) = run("analysed", "2s")["findings"]
    holder, other = ("holder2", "holder1") if "holder2 ends" in finding["message"] else ("holder1", "holder2")
    assert finding["message"] == (
        f"{holder} ends with status 1 if `y` from grantor to {holder} "
        "(send_word at lease.c:24, from grant at lease.c:50) "
        f"is delivered before `h` from {other} to {holder} (send_word at lease.c:24, from hold at lease.c:62) "
        "and the time-out of grantor at grant (lease.c:47) passes"
    )
    replays = [run_crashcheck("replay", finding["replay"], cwd=tmp_path, env=os.environ) for _ in range(2)]
    assert [each.returncode for each in replays] == [1, 1]
    assert replays[0].stdout == replays[1].stdout


@pytest.mark.parametrize("strategy", ["dfs", "random", "hybrid"])
def test_each_strategy_lets_time_pass(run: Callable[..., dict[str, Any]], strategy: str) -> None:
    assert len(run("analysed", "free", strategy, "--states", "30")["findings"]) == 1


def test_without_the_analysis_no_time_passes(run: Callable[..., dict[str, Any]]) -> None:
    report = run("plain", "2s")
    assert (report["findings"], report["run"]["states"]["executed"]) == ([], 2)
