"""`crashcheck run` and `replay` on nodes that are real processes: two-phase commit in C, with a planted bug."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import compilers
from support.command_line import run_crashcheck

SOURCE = Path(__file__).parent / "nodes" / "commit.c"
NODES = """
[[node]]
name = "coordinator"
command = "./commit {{index}} {{peers}} {arguments}"
ends = true
[[node]]
name = "participant"
command = "./commit {{index}} {{peers}} {arguments}"
count = 3
ends = true
[strategy]
name = "dpor"
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("commit") / "commit"
    command = [*compilers.c_compiler(), "-O0", "-g", "-Wall", "-Wextra", "-Werror", str(SOURCE), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def project(tmp_path: Path, program: Path) -> Path:
    os.link(program, tmp_path / "commit")
    return tmp_path


def run(project: Path, text: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON report and what was printed."""
    (project / "crashcheck.toml").write_text(text)
    formats = ("--format", "json=report.json", "--format", "terminal", "--format", "html=report.html")
    ended = run_crashcheck("run", *formats, *options, cwd=project, env=os.environ)
    report = project / "report.json"
    return ended.returncode, json.loads(report.read_text()) if report.exists() else {}, ended.stdout + ended.stderr


def test_a_commit_after_the_first_yes_is_found_minimised_and_replayed(project: Path) -> None:
    code, report, printed = run(project, NODES.format(arguments="yyn first"))
    assert code == 1, printed
    (finding,) = report["findings"]
    yes = "participant1" if "participant1" in finding["message"] else "participant2"
    sender = "(send_word at commit.c:17, from participate at commit.c:81)"
    assert finding["message"] == (
        f"participant3 ends with status 1 if `yes` from {yes} to coordinator {sender} is delivered before "
        f"`no` from participant3 to coordinator {sender}"
    )
    assert (finding["location"]["function"], finding["location"]["line"]) == ("send_word", 17)
    rows = finding["evidence"]["rows"]
    assert [row["what"] for row in rows[10:]] == [
        f"`prepare` from coordinator to {yes} is delivered",
        "`prepare` from coordinator to participant3 is delivered",
        f"`yes` from {yes} to coordinator is delivered",
        "`commit` from coordinator to participant3 is delivered",
        "not yet: `no` from participant3 to coordinator",
    ]
    assert '<svg class="pic spacetime"' in (project / "report.html").read_text()
    replays = [run_crashcheck("replay", finding["replay"], cwd=project, env=os.environ) for _ in range(2)]
    assert [each.returncode for each in replays] == [1, 1]
    assert replays[0].stdout == replays[1].stdout
    assert replays[0].stdout.endswith("      participant3 | commit\nThen participant3 ends with status 1.\n")


def test_two_phase_commit_as_it_should_be_passes_in_all_orders(project: Path) -> None:
    code, report, printed = run(project, NODES.format(arguments="yyn"))
    assert (code, report["findings"], report["run"]["states"]["feasible_exact"]) == (0, [], True), printed


def test_partial_orders_are_the_orders_in_which_the_coordinator_receives_the_votes(project: Path) -> None:
    """Without acknowledgements and timers, and with nodes that stay: the votes of 3 participants have 6 orders."""
    code, report, printed = run(project, NODES.format(arguments="yyy stay").replace("ends = true\n", ""))
    states = report["run"]["states"]
    assert (code, states["feasible"], states["executed"], states["feasible_exact"]) == (0, 6, 6, True), printed


def test_a_token_of_another_program_is_refused(project: Path) -> None:
    _, report, _ = run(project, NODES.format(arguments="yyn first"), "--states", "40")
    token = report["findings"][0]["replay"]
    data = (project / "commit").read_bytes()
    (project / "commit").unlink()
    (project / "commit").write_bytes(data + b"changed")
    (project / "commit").chmod(0o755)
    replay = run_crashcheck("replay", token, cwd=project, env=os.environ)
    assert replay.returncode == 2
    assert "[token-other-nodes]" in replay.stderr


def test_a_token_is_followed_with_a_fix_until_the_nodes_depart_from_it(project: Path) -> None:
    _, report, _ = run(project, NODES.format(arguments="yyn first"), "--states", "40")
    (finding,) = report["findings"]
    same = run_crashcheck("replay", "--steer", finding["replay"], cwd=project, env=os.environ)
    assert (same.returncode, same.stdout.splitlines()[-1]) == (1, "It followed the token to its end.")
    (project / "crashcheck.toml").write_text(NODES.format(arguments="yyn"))
    fixed = run_crashcheck("replay", "--steer", finding["replay"], cwd=project, env=os.environ)
    assert fixed.returncode == 0, fixed.stderr
    assert fixed.stdout.splitlines()[-1] == (
        "It departs from the token after action 13: `abort` from coordinator to participant3 is delivered there. "
        "0 of the token's 4 actions did not come."
    )


def test_steering_is_for_tokens_of_nodes(project: Path) -> None:
    (project / "crashcheck.toml").write_text(NODES.format(arguments="yyn"))
    ended = run_crashcheck("replay", "--steer", "crash:aaaa", cwd=project, env=os.environ)
    assert (ended.returncode, "[token-malformed]" in ended.stderr) == (2, True)


def test_a_call_that_fails_by_choice_is_named(project: Path) -> None:
    fault = '[[faults]]\ncall = "send"\nerror = "EPIPE"\nnode = "coordinator"\n[bounds]\nfaults = 1\n'
    code, report, printed = run(
        project, NODES.format(arguments="yyn") + fault, "--strategy", "random", "--states", "30"
    )
    assert code == 1, printed
    messages = [finding["message"] for finding in report["findings"]]
    assert any("coordinator ends with status 3 if coordinator has a failing send (EPIPE)" in one for one in messages)


def test_a_call_with_a_number_that_never_comes_and_a_bound_that_nothing_draws_on_are_in_the_report(
    project: Path,
) -> None:
    fault = '[[faults]]\ncall = "send"\nnode = "coordinator"\nnth = {nth}\n[bounds]\nloss = 2\n'
    unused = {
        99: ["in no run (of 5) did a call meet [[faults]] 1: send number 99 of coordinator (EIO)"],
        2: [],
    }
    for nth, named in unused.items():
        _, report, printed = run(project, NODES.format(arguments="yyn") + fault.format(nth=nth), "--states", "5")
        never = "no run (of 5) drew on [bounds] loss = 2: no datagram was on its way"
        assert [text for text in report["run"]["warnings"] if "no run" in text] == [never, *named], printed


def test_a_check_of_progress_needs_no_failure_after_the_run(project: Path) -> None:
    text = NODES.format(arguments="yyn") + '[check]\nprogress = "grep -q %s {state}/n0.output"\n'
    assert run(project, text % "abort", "--states", "5")[0] == 0
    code, report, printed = run(project, text % "commit", "--states", "5")
    assert code == 1, printed
    assert report["findings"][0]["message"].startswith("the check of progress fails, although failures stop,")


def test_a_folder_has_its_name_in_the_state(project: Path) -> None:
    named = NODES.format(arguments="yyn").replace("ends = true", 'ends = true\nfolder = "data{index}"')
    check = '[check]\nend = "test -d {state}/data3 -a -e {state}/data3.output"\n'
    assert run(project, named + check, "--states", "5")[0] == 0


def test_a_check_is_given_the_folder_of_the_configuration(project: Path) -> None:
    check = '[check]\nend = "test -e {project}/crashcheck.toml"\n'
    assert run(project, NODES.format(arguments="yyy") + check, "--states", "5")[0] == 0


@pytest.mark.parametrize("strategy", ["dpor", "hybrid", "random"])
def test_reports_are_equal_with_one_job_and_with_two(project: Path, strategy: str) -> None:
    text = NODES.format(arguments="yyn first").replace("dpor", strategy)
    reports = [run(project, text, "--jobs", str(jobs), "--states", "20")[1] for jobs in (1, 2)]
    one, two = ([report["findings"], report["run"]["states"], report["run"]["warnings"]] for report in reports)
    assert one[0]
    assert one == two


def test_a_check_of_the_end_judges_files_and_output(project: Path) -> None:
    check = '\n[check]\nend = "grep -q abort {state}/n0.output"\n'
    code, report, _ = run(project, NODES.format(arguments="yyy") + check, "--states", "5")
    assert (code, report["findings"][0]["message"]) == (1, "the check of the end fails in the default order of actions")


def test_equal_states_are_judged_once_where_partial_orders_are_searched(project: Path) -> None:
    (project / "judge.sh").write_text('cd $1; echo $(grep . *.output) >> "$2"\n')
    check = f'\n[check]\nafter = "sh judge.sh {{state}} {project}/judged"\n'
    code, _, printed = run(project, NODES.format(arguments="yyn") + check, "--states", "5", "--jobs", "1")
    judged = (project / "judged").read_text().splitlines()
    assert (code, len(judged)) == (0, len(set(judged))), printed
    assert len(judged) > 3


def test_options_of_crash_states_are_refused(project: Path) -> None:
    code, _, printed = run(project, NODES.format(arguments="yyn"), "--resume")
    assert (code, "--resume does not work on nodes" in printed) == (2, True)


def test_partial_orders_include_those_in_which_a_time_out_comes_before_what_makes_it_void(tmp_path: Path) -> None:
    """After the message, as in the default order, nobody sees anything of the time-out."""
    server = (
        "import os, socket, threading, time\ns = socket.socket(2, 2); s.bind(('10.0.0.1', 7))\nlate = []\n"
        "def wait(): time.sleep(1); late.append(1)\nthreading.Thread(target=wait).start()\ns.recv(9)\n"
        "if late: os._exit(1)\ntime.sleep(9)"
    )
    (tmp_path / "server.py").write_text(server)
    (tmp_path / "client.py").write_text("import socket\nsocket.socket(2, 2).sendto(b'x', ('10.0.0.1', 7))")
    command = '[[node]]\nname = "{0}"\ncommand = "python3 -S -E {{project}}/{0}.py"\n'
    text = command.format("server") + command.format("client") + '[strategy]\nname = "dpor"\n'
    code, report, printed = run(tmp_path, text)
    assert code == 1, printed
    assert [finding["message"] for finding in report["findings"]] == [
        "server ends with status 1 if timer 1 of server fires before `x` from client to server "
        "(<module> at client.py:2) is delivered"
    ]


def test_a_time_out_that_fires_early_is_named_where_no_two_actions_may_change_places(tmp_path: Path) -> None:
    """What would have stopped it, an answer from the third node by way of the first, is not sent yet."""
    server = (
        "import socket\ns = socket.socket(2, 2); s.bind(('10.0.0.1', 7)); client = None\n"
        "for at in range(4):\n data, sender = s.recvfrom(9)\n"
        " if data == b'kept': s.sendto(b'done', client)\n"
        " else:\n  print('applied', flush=True)\n  client = sender\n  s.sendto(b'copy', ('10.0.0.3', 7))"
    )
    client = (
        "import socket\ns = socket.socket(2, 2); s.settimeout(1)\nfor at in range(2):\n"
        " s.sendto(b'add', ('10.0.0.1', 7))\n try: s.recv(9); break\n except TimeoutError: pass"
    )
    backup = (
        "import socket\ns = socket.socket(2, 2); s.bind(('10.0.0.3', 7))\n"
        "while True: s.sendto(b'kept', s.recvfrom(9)[1])"
    )
    for name, text in (("server", server), ("client", client), ("backup", backup)):
        (tmp_path / f"{name}.py").write_text(text)
    command = '[[node]]\nname = "{0}"\ncommand = "python3 -S -E {{project}}/{0}.py"\n'
    text = "".join(map(command.format, ("server", "client", "backup")))
    text += '[check]\nafter = "test `grep -c applied {state}/n0.output` -lt 2"\n[strategy]\nname = "dpor"\n'
    _, report, printed = run(tmp_path, text, "--states", "20")
    assert [finding["message"] for finding in report["findings"]] == [
        "the check fails if timer 1 of client fires and `add` from client to server "
        "(<module> at client.py:4) is delivered"
    ], printed


def test_the_reset_and_the_refusal_of_a_connection_are_named(tmp_path: Path) -> None:
    """The client has closed its connection when the server writes, and finds nobody at another port."""
    server = (
        "import socket, time\na = socket.create_server(('', 7)).accept()[0]\na.recv(9)\n"
        "a.send(b'x')\ntime.sleep(9)\na.send(b'y')"
    )
    client = (
        "import socket, time\nsocket.create_connection(('10.0.0.1', 7)).close()\n"
        "try: socket.create_connection(('10.0.0.1', 8))\nexcept OSError: time.sleep(99)"
    )
    for name, text in (("server", server), ("client", client)):
        (tmp_path / f"{name}.py").write_text(text)
    command = '[[node]]\nname = "{0}"\ncommand = "python3 -S -E {{project}}/{0}.py"\n'
    code, report, printed = run(tmp_path, command.format("server") + command.format("client"), "--states", "1")
    assert code == 1, printed
    (finding,) = report["findings"]
    rows = [row["what"] for row in finding["evidence"]["rows"]]
    assert {
        "the end of the connection from client to server is delivered",
        "the refusal of the connection request from server to client is delivered",
        "the reset of the connection from client to server is delivered",
    } <= set(rows)


def test_a_node_that_fails_is_shown_with_what_it_wrote_to_its_standard_error(tmp_path: Path) -> None:
    (tmp_path / "node.sh").write_text("echo started\necho no such volume: $1 >&2\nexit 3\n")
    code, report, printed = run(tmp_path, '[[node]]\ncommand = "sh {project}/node.sh data7"\n')
    assert code == 1, printed
    assert report["findings"][0]["message"] == "n0 ends with status 3 in the default order of actions"
    assert "\n          started\n          no such volume: data7\n" in printed


@pytest.mark.parametrize(("strategy", "least", "most"), [("dpor", 400, 500), ("hybrid", 64, 200)])
def test_a_sample_of_runs_judges_no_more_cuts_than_states(tmp_path: Path, strategy: str, least: int, most: int) -> None:
    """Two nodes that print 20 lines each, one at a timer: 41 states of a run, and 441 consistent cuts."""
    node = "for at in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1; echo $at; done"
    (tmp_path / "check").write_text("#!/bin/sh\necho >> judged\n")
    (tmp_path / "check").chmod(0o700)
    text = f"[[node]]\ncommand = '''sh -c \"{node}\"'''\ncount = 2\n[check]\nafter = \"./check {{state}}\"\n"
    _, _, printed = run(tmp_path, text + f'[strategy]\nname = "{strategy}"\n[budget]\nstates = 1\n')
    assert least <= len((tmp_path / "judged").read_text()) <= most, printed
    limited = "1 runs have too many consistent cuts" in printed
    assert limited == (strategy == "hybrid")
