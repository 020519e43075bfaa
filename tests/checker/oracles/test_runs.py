"""Real drivers: what is found without a check to write, and what is reported when a driver cannot be judged."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashcheck.checker.token import parse
from support.command_line import run_crashcheck
from support.compilers import c_compiler

HERE = Path(__file__).resolve().parent
PAIRS = (HERE / "pairs.c").read_text(encoding="utf-8")
TABLE = ["insert 1 11", "insert 2 22", "update 1 33", "query 1", "delete 2", "query 2", "query 1"]

Drive = Callable[..., Any]
Example = Callable[..., str]


def test_the_verdict_shows_both_references_and_what_was_printed(drive: Drive, example: Example) -> None:
    ran = drive(example("buggy"), TABLE)
    (finding,) = ran.findings
    assert ran.exit_code == 1
    assert (finding["kind"], finding["location"]["function"], finding["other"]["variable"]) == (
        "ordering",
        "commit",
        "entry.value",
    )
    assert finding["verdict"]["output"].splitlines() == [
        "crash in operation 3 (update 1 33); the rest (operations 4 to 7) was then run on the image",
        "and printed what no legal history prints",
        " line | after the crash                | operation 3 done               | operation 3 not done",
        "    1 | query 1: 0                     | query 1: 33                    | query 1: 11",
        "  ...",
        "    4 | query 1: 0                     | query 1: 33                    | query 1: 11",
    ]


def test_one_history_must_fit_throughout(drive: Drive) -> None:
    """Each line is legal after one of the two histories, and no history prints both."""
    source = PAIRS.replace("slots[slot].value = value;", "slots[slot].value = value; slots[slot + 1].value = value;")
    source = source.replace("flush(&slots[slot], 8);", "flush(&slots[slot], 8); flush(&slots[slot + 1], 8);")
    ran = drive(source, ["put 0 1", "get 0", "get 1"])
    assert ran.exit_code == 1
    (finding,) = ran.findings  # the two must persist together, whichever of them is lost
    table = finding["verdict"]["output"].splitlines()[3:]
    assert "    1 | 1                              | 1                              | 0" in table
    assert "    2 | 0                              | 1                              | 0" in table


def test_a_death_is_a_finding_too(drive: Drive, example: Example) -> None:
    dies = "    if (!bucket->entry[slot].value) abort();\n"
    source = example("buggy", query_value=lambda old: dies + old)
    ran = drive(source, TABLE)
    (finding,) = ran.findings
    assert (finding["verdict"]["outcome"], finding["verdict"]["signal"]) == ("signal", 6)
    assert "and it died of signal 6\n" in finding["verdict"]["output"]


@pytest.mark.parametrize("together", [1, 2, 4])
def test_operations_under_way_at_once_may_be_done_in_any_order_or_not(drive: Drive, together: int) -> None:
    """The later line is done first: the reference in the file's order alone would call that a bug."""
    operations = ["put 0 1", "put 0 2", "put 1 3", "put 2 4", "get 0", "get 1", "get 2", "get 3"]
    ran = drive(PAIRS, operations, more=f" {together}")
    unseen = [text for text in ran.report["run"]["warnings"] if "put 0 1" in text]
    assert (ran.exit_code, ran.findings, len(unseen)) == (0, [], 1 if together == 1 else 0)


def test_with_operations_under_way_at_once_a_lost_one_is_still_found(drive: Drive) -> None:
    ran = drive("#define STALE\n" + PAIRS, ["put 0 1", "put 2 2", "get 0", "get 2"], more=" 2")
    assert ran.exit_code == 1
    assert {finding["kind"] for finding in ran.findings} == {"unpersisted"}


def test_more_than_four_at_once_are_named_as_not_judged(drive: Drive) -> None:
    ran = drive(PAIRS, [f"put {slot} 7" for slot in range(5)], more=" 5")
    assert ran.exit_code == 0
    (warning,) = [text for text in ran.report["run"]["warnings"] if text.startswith("not judged")]
    assert "up to 5 operations overlapped" in warning


def test_a_reference_that_fails_is_unusable_and_named(drive: Drive, example: Example) -> None:
    """Without its insertion, the deletion fails by itself: a crash in the insertion cannot be judged by that."""
    source = example("fixed", delete_missing=lambda old: old.replace('return "missing"', "exit(3)"))
    ran = drive(source, ["insert 1 11", "delete 1", "query 1"])
    assert (ran.exit_code, ran.findings) == (0, [])
    (warning,) = [text for text in ran.report["run"]["warnings"] if text.startswith("unusable")]
    assert "all but operation 1 (insert 1 11): running the rest, it exited with status 3" in warning


def test_operations_whose_loss_no_output_shows_are_named_before_the_search(drive: Drive) -> None:
    """The first is overwritten before it is read, the last is never read; a query updates nothing."""
    ran = drive(PAIRS, ["put 0 1", "put 0 2", "get 0", "put 1 3"])
    named = "the rest's output does not show whether operations were lost, 2 of 3 tried: 1 (put 0 1), 4 (put 1 3)."
    (warning,) = [text for text in ran.report["run"]["warnings"] if "does not show" in text]
    assert warning.startswith(named)
    assert f"crashcheck: {warning}" in ran.stderr
    assert drive(PAIRS, ["put 0 1", "get 0", "put 1 3", "get 1"]).report["run"]["warnings"] == []


def test_what_the_driver_prints_when_it_recovers_is_reported_before_the_search(drive: Drive) -> None:
    """A clean reopen prints nothing: only an image in the middle of an operation shows it."""
    dirty = "slots[7].value = {}; flush(&slots[7], 8); fence();"
    value = "slots[slot].value = value;"
    source = PAIRS.replace(value, dirty.format(1) + value).replace(
        '        strcpy(answer, "ok");', dirty.format(0) + 'strcpy(answer, "ok");'
    )
    source = source.replace(
        "    do {\n", '    if (slots[7].value) puts("recovering");\n' + dirty.format(0) + "    do {\n", 1
    )
    ran = drive(source, ["put 0 1", "get 0"])
    assert ran.exit_code == 1
    assert "the driver prints 'recovering' when it recovers from a crash in operation 1 (put 0 1)" in ran.stderr


def test_a_driver_that_prints_what_differs_each_time_is_refused(drive: Drive, example: Example) -> None:
    ran = drive(example("fixed", answer=lambda old: old + '        printf("%d\\n", (int)getpid());\n'), TABLE)
    assert ran.exit_code == 2
    assert "[driver-not-deterministic]" in ran.stderr
    assert "line 2 is" in ran.stderr


def test_a_driver_that_prints_when_it_opens_is_refused_at_the_first_boundary(drive: Drive, example: Example) -> None:
    ran = drive(example("fixed", open=lambda old: '    puts("opened");\n' + old), TABLE)
    assert ran.exit_code == 2
    assert "[driver-not-reopenable]" in ran.stderr
    assert "after operation 1 (insert 1 11)" in ran.stderr


def test_what_is_kept_in_memory_only_shows_at_the_boundary_that_loses_it(drive: Drive, example: Example) -> None:
    counts = "        static int updates;\n        updates += name[0] == 'u';\n"
    prints = "        if (name[0] == 'q') printf(\"%d\\n\", updates);\n"
    ran = drive(example("fixed", answer=lambda old: counts + prints + old), TABLE)
    assert ran.exit_code == 1
    (finding,) = ran.findings
    assert (finding["kind"], finding["level"]) == ("reopen", "error")
    assert finding["message"] == (
        "a clean reopen after operation 3 (update 1 33) changes the output: the driver prints other things for the "
        "rest: line 1 is '1' and then '0'"
    )
    assert ran.report["run"]["stop_reason"] == "exhausted"
    (warning,) = [text for text in ran.report["run"]["warnings"] if text.startswith("not judged")]
    assert warning.endswith("a clean reopen alone changes it, so only crashes and hangs were looked for there")


def test_operations_that_a_clean_reopen_leaves_alone_are_searched(drive: Drive, example: Example) -> None:
    """What follows the deletion is harmed, until the last query: the bug of the update before it is found."""
    counts = "        static int deletions;\n        deletions += name[0] == 'd';\n"
    prints = "        if (name[0] == 'q') printf(\"%d\\n\", deletions);\n"
    (alone,) = drive(example("buggy"), TABLE).findings
    reopen, found = drive(example("buggy", answer=lambda old: counts + prints + old), TABLE).findings
    assert (reopen["kind"], reopen["evidence"]["after"]) == ("reopen", "operation 5 (delete 2)")
    assert found["id"] == alone["id"]


def test_a_reopen_that_loses_what_no_operation_left_names_none(drive: Drive, example: Example) -> None:
    """The process that makes the pool knows it: whatever is done first, the next process does not."""
    opening = "    struct table *table = open_table(argv[1]);\n"
    asks = f"    int old = !access(argv[1], F_OK);\n{opening}"
    source = example("fixed", answer=lambda old: f'        printf("%d ", old);\n{old}')
    ran = drive(source.replace(opening, asks).replace("int main(", "#include <unistd.h>\nint main("), TABLE)
    (finding,) = ran.findings
    assert finding["message"].startswith("a clean reopen after no operation changes the output: operation 1 (insert")
    assert finding["note"].startswith("to close and reopen the pool changes what follows before any operation is done")


ALSO = '        static FILE *also;\n        if (!also) also = fopen("/dev/stdout", "w");\n'


@pytest.mark.parametrize(("twin", "kinds"), [("fixed", []), ("buggy", ["ordering"])])
def test_the_order_of_two_writers_to_standard_output_is_no_difference(
    drive: Drive, example: Example, twin: str, kinds: list[str]
) -> None:
    """Each has its own buffer, which is written when the process ends."""
    ran = drive(example(twin, answer=lambda old: f'{ALSO}        fprintf(also, "%s\\n", answer);\n{old}'), TABLE)
    assert [finding["kind"] for finding in ran.findings] == kinds
    (warning,) = [text for text in ran.report["run"]["warnings"] if "open files" in text]
    assert warning.startswith("the driver writes to stdout through 2 open files")


def test_what_two_writers_lose_is_a_difference(drive: Drive, example: Example) -> None:
    counts = "        static int updates;\n        updates += name[0] == 'u';\n"
    prints = '        fprintf(also, "%d\\n", updates);\n'
    ran = drive(example("fixed", answer=lambda old: ALSO + counts + prints + old), TABLE)
    assert [finding["kind"] for finding in ran.findings] == ["reopen"]


def test_what_a_clean_reopen_loses_is_reported_and_can_be_repeated_by_its_token_and_by_hand(
    drive: Drive, example: Example, tmp_path: Path, environment: dict[str, str]
) -> None:
    counts = "        static int updates;\n        updates += name[0] == 'u';\n"
    prints = '        printf("%d ", updates);\n'
    source = example("fixed", answer=lambda old: counts + prints + old)
    (finding,) = drive(source, TABLE).findings
    assert "operation 4 (query 1) prints '0 query 1: 33' instead of '1 query 1: 33'" in finding["message"]
    again = run_crashcheck("run", cwd=tmp_path, env=environment)
    assert again.returncode == 1
    assert f"clean reopen  [no crash]  {finding['id']}" in again.stdout
    assert f"replay   crashcheck replay {finding['replay']}" in again.stdout
    replayed = run_crashcheck("replay", finding["replay"], cwd=tmp_path, env=environment)
    assert (replayed.returncode, replayed.stdout) == (
        1,
        "Closed and reopened after operation 3 (update 1 33): operation 4 (query 1) prints '0 query 1: 33' instead of "
        "'1 query 1: 33'.\n",
    )
    before = parse(finding["replay"])
    harmless = run_crashcheck("replay", str(replace(before, ordinal=1)), cwd=tmp_path, env=environment)
    assert (harmless.returncode, harmless.stdout) == (
        0,
        f"Closed and reopened after operation 1 ({TABLE[0]}): the rest of the output is as without it.\n",
    )
    kept = run_crashcheck("replay", finding["replay"], "--keep", "image", cwd=tmp_path, env=environment)
    assert "[token-no-state]" in kept.stderr
    (tmp_path / "POOL").mkdir()
    by_hand = subprocess.run(finding["evidence"]["commands"], shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert by_hand.stdout.splitlines()[3] == "0 query 1: 33"
    with (tmp_path / "crashcheck.toml").open("a") as config:
        config.write(f'[[suppress]]\nid = "{finding["id"]}"\nreason = "a test"\n')
    accepted = run_crashcheck("run", cwd=tmp_path, env=environment)
    assert accepted.returncode == 0


def test_a_driver_that_fails_uncrashed_is_refused(drive: Drive) -> None:
    """The check alone: the workload has one argument more."""
    ran = drive(
        PAIRS.replace("int together = ", 'if (argc == 3) { fputs("no\\n", stderr); return 4; } int together = '),
        ["get 0", "put 0 1"],
        more=" 1",
    )
    assert ran.exit_code == 2
    assert "[driver-failed]" in ran.stderr
    assert "it exited with status 4: no" in ran.stderr


def test_marks_that_do_not_match_the_lines_are_refused(drive: Drive, example: Example) -> None:
    ran = drive(example("fixed", end=lambda old: "        if (name[0] != 'd')\n    " + old), TABLE)
    assert ran.exit_code == 2
    assert "the file has 7 operations, but the workload began 7 and ended 6" in ran.stderr
    assert "[operations-mismatch]" in ran.stderr


def test_an_empty_operation_file_is_refused(drive: Drive, example: Example) -> None:
    ran = drive(example("fixed"), ["", "  "])
    assert ran.exit_code == 2
    assert "[operations-file]" in ran.stderr


def test_unrecorded_updates_that_matter_at_a_boundary_stop_the_run(
    drive: Drive, example: Example, tmp_path: Path
) -> None:
    """A store in a function that is not instrumented: seen where nothing hides it."""
    (tmp_path / "unseen.c").write_text("void unseen(unsigned long *to, unsigned long value) { *to = value; }\n")
    source = "void unseen(unsigned long *, unsigned long);\n" + example("fixed")
    source = source.replace("    entry->value = value;\n", "    unseen(&entry->value, value);\n")
    build = f"{shlex.join(c_compiler())} -c unseen.c && crashcheck-cc -O1 -g -o driver driver.c unseen.o"
    ran = drive(source, TABLE, build=build)
    assert ran.exit_code == 2
    assert "[boundary-rejected]" in ran.stderr
    assert "after operation 3 (update 1 33)" in ran.stderr


ANSWERS_IN = {
    "stderr": 'printf("%d operations\\n", 1); fprintf(stderr, "%s\\n", answers[i]);',
    "fd 9": 'puts("done"); dprintf(9, "%s\\n", answers[i]);',
    "{pool}/results.txt": 'puts("done"); fprintf(results, "%s\\n", answers[i]);',
}


@pytest.mark.parametrize(("stale", "exit_code"), [("", 0), ("#define STALE\n", 1)])
@pytest.mark.parametrize("output", ANSWERS_IN)
def test_other_outputs_are_compared_as_standard_output_is(
    drive: Drive, output: str, stale: str, exit_code: int
) -> None:
    """What the operations print is there alone; each run begins with no file."""
    answers, loop = 'printf("%s\\n", answers[i]);', "    do {\n        for (count"
    opened = '    FILE *results = fopen(strcat(strcpy(malloc(4096), dirname(strdup(argv[1]))), "/results.txt"), "a");\n'
    assert (PAIRS.count(answers), PAIRS.count(loop)) == (1, 1)
    source = "#include <libgen.h>\n" + stale + PAIRS.replace(answers, "{ " + ANSWERS_IN[output] + " }")
    source = source.replace(loop, opened + loop)
    ran = drive(source, ["put 0 1", "get 0", "put 2 2", "get 2"], outputs=["stdout", output])
    assert (ran.exit_code, [finding["kind"] for finding in ran.findings]) == (exit_code, ["unpersisted"] * exit_code)
    unwatched = any("results.txt: no pattern" in warning for warning in ran.report["run"]["warnings"])
    assert unwatched == (output != "{pool}/results.txt")
    for finding in ran.findings:
        assert finding["verdict"]["output"].splitlines()[2] == f"{output}:"
    assert not stale or drive(source, ["put 0 1", "get 0"]).findings == []


def test_a_clean_reopen_must_not_show_in_any_output(drive: Drive, example: Example) -> None:
    counts = '        static int updates;\n        updates += name[0] == 117;\n        dprintf(5, "%d\\n", updates);\n'
    source = example("fixed", answer=lambda old: counts + old)
    assert drive(source, TABLE).exit_code == 0
    ran = drive(source, TABLE, outputs=["stdout", "fd 5"])
    assert "operation 4 (query 1) prints '0' instead of '1' in fd 5" in ran.findings[0]["message"]


def test_standard_error_is_not_compared(drive: Drive, example: Example) -> None:
    ran = drive(example("fixed", open=lambda old: '    fprintf(stderr, "%d\\n", (int)getpid());\n' + old), TABLE)
    assert (ran.exit_code, ran.findings) == (0, [])


def test_a_replay_gives_the_operations_that_belong_to_the_kept_image(
    drive: Drive, example: Example, tmp_path: Path, environment: dict[str, str]
) -> None:
    (finding,) = drive(example("buggy"), TABLE).findings
    kept = tmp_path / "kept"
    shutil.rmtree(tmp_path / ".crashcheck")  # as on a fresh clone: the replay records by itself
    words = ["replay", "--keep", str(kept), finding["replay"]]
    done = run_crashcheck(*words, cwd=tmp_path, env=environment)
    assert done.returncode == 1
    assert f"  {kept}.sh\n" in done.stdout
    assert Path(f"{kept}.operations").read_text().splitlines() == TABLE[3:]
    by_hand = subprocess.run([f"{kept}.sh"], cwd="/", capture_output=True, text=True, check=True)
    assert by_hand.stdout.splitlines()[0] == "query 1: 0"


def test_functions_are_operations_by_name_without_a_change_to_the_source(drive: Drive, example: Example) -> None:
    """The marks in the source are taken out; the names do the same, and leave no frame in call stacks."""
    marked = drive(example("buggy"), TABLE)
    source = example("buggy", begin=lambda old: "        ;\n", end=lambda old: "        ;\n")
    named = drive(source, TABLE, operations_by_name=["insert", "update", "delete", "query"])
    assert named.report["run"]["trace"]["operations"] == len(TABLE)
    (finding,), (same,) = named.findings, marked.findings
    assert (finding["id"], finding["location"], finding["verdict"]["output"]) == (
        same["id"],
        same["location"],
        same["verdict"]["output"],
    )


def test_a_name_that_no_function_has_is_refused(drive: Drive, example: Example) -> None:
    ran = drive(example("fixed"), TABLE, operations_by_name=["insert", "upsert"])
    assert ran.exit_code == 2
    assert "names upsert, but" in ran.stderr
    assert "[operations-not-found]" in ran.stderr


@pytest.mark.parametrize(("stale", "exit_code"), [("", 0), ("#define STALE\n", 1)])
def test_outputs_are_compared_whole_however_long(drive: Drive, stale: str, exit_code: int) -> None:
    """What differs is in the part that is not kept for reports."""
    padding = 'for (int i = 0; i < 1000; i++) puts("........................................................");'
    source = stale + PAIRS.replace(
        'printf("%s\\n", answers[i]);', f'{{ {padding} printf("%s\\n", answers[i]); {padding} }}'
    )
    ran = drive(source, ["put 0 1", "put 2 2", "get 0"])
    assert ran.exit_code == exit_code
    shown = "".join(finding["verdict"]["output"] for finding in ran.findings)
    assert ("(outputs are compared whole; their middles were not kept to be shown)" in shown) == bool(exit_code)
