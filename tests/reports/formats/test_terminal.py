"""The terminal report is compact, plain where it must be, and deaf to what programs print."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from crashcheck.checker.budget import Progress
from crashcheck.checker.results import Base, Frame, NotExplored, RunResult
from crashcheck.config import BudgetConfig
from crashcheck.reports.formats.terminal import print_report, render
from crashcheck.reports.progress import LiveProgress, log_line, progress_console, status_line, time_left
from crashcheck.reports.view.run_view import build_view
from support.reports import golden
from support.reports.runs import CLEAN, FULL, ONE, SOURCES, hostile, many


@pytest.mark.parametrize(("name", "result"), [("clean", CLEAN), ("one", ONE), ("full", FULL)])
def test_the_report_reads_as_somebody_approved(name: str, result: RunResult) -> None:
    golden.check(f"{name}.txt", render(build_view(result, SOURCES), html_path="build/report.html"))


def test_a_change_of_documents_shows_no_states_and_no_trace() -> None:
    shown = render(build_view(replace(CLEAN, base=Base("main", "0" * 40, documents=("README.md",)))))
    assert [row.split()[0] for row in shown.splitlines()] == ["Nothing", "time"]


def test_hostile_text_stays_text_in_color_and_without() -> None:
    view = build_view(hostile())
    plain = render(view, width=80)
    assert "\x1b" not in plain
    assert "[bold red]" in plain
    colored = render(view, width=80, color=True)
    assert "\x1b]0;" not in colored
    assert "\x07" not in colored
    assert max(len(row) for row in plain.splitlines()) < 1000


def test_lines_are_cut_at_the_edge_of_a_terminal_and_never_in_a_file() -> None:
    stack = "in put_entry  ← level_insert at level_hash.c:118 ← run_workload at workload.c:31"
    assert stack in render(build_view(ONE, SOURCES), width=60)
    assert stack not in render(build_view(ONE, SOURCES), width=60, color=True)


def test_a_terminal_breaks_between_words_and_indents_what_follows_the_label() -> None:
    view = build_view(ONE, SOURCES)
    rows = re.sub(r"\x1b\[[0-9;]*m", "", render(view, width=60, color=True)).splitlines()
    assert max(len(row) for row in rows if "replay" not in row) <= 60
    at = next(i for i, row in enumerate(rows) if row.startswith("  crash    "))
    assert rows[at + 1].startswith(" " * 11)
    assert rows[at + 1][11] != " "
    joined = " ".join(row.strip() for row in rows[at : at + 3])
    assert joined.startswith(f"crash    {view.findings[0].evidence.summary}")


def test_states_that_explored_runs_did_not_decide_are_one_fact_with_the_reasons() -> None:
    left = (NotExplored("it starts threads", 40), NotExplored("it reads the clock", 2))
    text = render(build_view(replace(FULL, states=replace(FULL.states, not_explored=left))))
    assert text.count("not explored") == 1
    assert "42 not explored" in text
    assert "Explored runs did not decide 42 states: it starts threads (40); it reads the clock (2)." in text


@pytest.mark.parametrize(
    ("depth", "shown"),
    [
        (1, "in put_entry  ← f0 at lib.c:0 ← store at app.c:9"),
        (4, "in put_entry  ← f0 at lib.c:0 ← … 3 more ← store at app.c:9"),
    ],
)
def test_of_a_store_in_a_library_the_stack_shows_the_projects_own_call(depth: int, shown: str) -> None:
    inside = tuple(Frame(f"f{at}", "/usr/src/lib.c", at) for at in range(depth))
    (finding,) = ONE.findings
    calls = (*inside, Frame("store", "app.c", 9), Frame("main", "app.c", 99))
    store = replace(finding.location, file="/usr/src/lib.c", stack=calls)
    assert shown + "\n" in render(build_view(replace(ONE, findings=(replace(finding, location=store),))))


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    buffer = io.StringIO()
    print_report(build_view(ONE), Console(file=buffer, force_terminal=True, width=100))
    assert "\x1b[3" not in buffer.getvalue()


def test_a_hundred_findings_end_with_the_counts() -> None:
    text = render(build_view(many(100)))
    assert text.count("replay   crashcheck replay ") == 100
    assert "100 findings; 412 of 10^77 feasible crash states checked" in text[-1500:]


def test_progress_is_silent_where_there_is_no_terminal() -> None:
    buffer = io.StringIO()
    with LiveProgress(Console(file=buffer), BudgetConfig()) as progress:
        progress.update("checking", Progress(1.0, executed=4))
    assert buffer.getvalue() == ""


class Log(io.StringIO):
    """Where lines are written, and an event for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        self.begun.set()
        return written


def test_a_log_gets_lines_with_the_phase_that_is_running() -> None:
    log = Log()
    progress = LiveProgress(Console(file=log), BudgetConfig(), log_every_s=0.001)
    progress.update("ranking", None)
    with progress:
        assert log.begun.wait(60)
    first = log.getvalue().splitlines()[0]
    assert first.startswith("crashcheck: ranking  (")
    assert first.endswith(" in this phase)")


def test_a_line_of_a_log_tells_the_search_and_the_time_of_its_phase() -> None:
    done = Progress(10.0, executed=400, pruned=12, failing=7, findings=1)
    words = "crashcheck: checking  412 states  41/s  7 failing  1 finding  50 s left  (10 s in this phase)"
    assert log_line("checking", done, BudgetConfig(60), 41.2, 10.0) == words


def test_no_line_is_redrawn_in_a_log_that_wants_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with LiveProgress(progress_console(), BudgetConfig()) as progress:
        progress.update("checking", Progress(1.0, executed=4))
    assert capsys.readouterr().err == ""


def test_progress_shows_on_a_terminal_and_is_gone_after() -> None:
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    with LiveProgress(console, BudgetConfig()) as progress:
        progress.update("checking", Progress(1.0, executed=4))
    assert "4 states" in buffer.getvalue()
    assert buffer.getvalue().endswith("\x1b[2K")


def test_the_live_line_names_states_rate_findings_and_time_left() -> None:
    done = Progress(10.0, executed=400, pruned=12, failing=7, findings=1)
    shown = status_line("checking", done, BudgetConfig(60), 41.2).plain
    assert shown == "checking  412 states  41/s  7 failing  1 finding  50 s left"


def test_the_live_line_shows_that_a_failure_is_being_explained() -> None:
    done = Progress(10.0, executed=1, failing=1, explaining=True)
    shown = status_line("checking", done, BudgetConfig(60), 0.1).plain
    assert shown == "checking  1 states  0.1/s  1 failing  0 findings  explaining a failure  50 s left"


def test_time_left_is_that_of_the_tightest_bound_and_unknown_without_one() -> None:
    done = Progress(10.0, executed=100)
    assert time_left(done, BudgetConfig(), 50.0) is None
    assert time_left(done, BudgetConfig(60, 200), 50.0) == 2.0
    assert time_left(done, BudgetConfig(11, 200), 50.0) == 1.0
    assert time_left(done, BudgetConfig(states=200), 50.0) == 2.0
    assert time_left(done, BudgetConfig(states=200), 0.0) is None
    assert time_left(Progress(70.0), BudgetConfig(60), 0.0) == 0.0


def test_the_rate_is_that_of_the_last_seconds() -> None:
    progress = LiveProgress(Console(file=io.StringIO()), BudgetConfig())
    rates = [progress.rate(Progress(float(t), executed=n)) for t, n in ((0, 0), (10, 10), (12, 210))]
    assert rates == [0.0, 1.0, 100.0]
