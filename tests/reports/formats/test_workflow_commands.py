"""Annotations by workflow commands: what GitHub's runner reads is what was meant, and never more than it shows."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from crashcheck.change.diff import Diff
from crashcheck.checker.results import RunResult
from crashcheck.reports.formats import workflow_commands
from crashcheck.reports.github.annotations import remarks, suppressed
from crashcheck.reports.view.run_view import build_view
from support.reports import golden
from support.reports.runs import CLEAN, FIXED, FULL, LEVEL_HASH, LMDB, ONE, RECORD, UNCERTAIN, hostile, many, run


def rendered(result: RunResult, diff: Diff | None = None) -> str:
    view = build_view(result)
    remarked = remarks(result, view, lambda file: file if not file.startswith("/") else "", diff)
    return workflow_commands.render(remarked, suppressed(view))


COMMAND = re.compile(r"::(error|warning|notice)(?: ([^:]*))?::(.*)")


def read(row: str) -> tuple[str, dict[str, str], str]:
    """As GitHub's runner reads a line (ActionCommand.TryParseV2): `::name key=value,…::data`, then %-codes undone."""
    match = COMMAND.fullmatch(row)
    assert match, row
    properties = dict(part.split("=", 1) for part in (match[2] or "").split(",") if part)

    def plain(text: str) -> str:
        for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            text = text.replace(code, character)
        return text

    return match[1], {key: plain(value) for key, value in properties.items()}, plain(match[3])


def test_a_finding_is_an_error_at_its_line() -> None:
    golden.check("one.github", rendered(ONE))
    (row,) = rendered(ONE).splitlines()
    name, properties, message = read(row)
    assert name == "error"
    assert properties == {"file": "src/level_hash.c", "line": "9", "title": "crashcheck: Ordering [px86]"}
    assert message.startswith("`token.valid` at src/level_hash.c:9 may persist before `entry.value`")


def test_a_fix_is_shown_with_its_edit() -> None:
    _, _, message = read(rendered(run(FIXED)).strip())
    assert message.splitlines()[2:5] == [
        "Suggested fix: flush and fence `entry.value` before `token.valid` is stored; with this edit: 0 of 6 "
        "failing states fail on this trace; 100 flushes and 100 fences more in the recorded run.",
        "src/level_hash.c:9 +     clwb(entry);",
        "src/level_hash.c:9 +     sfence();",
    ]


def test_a_clean_run_prints_nothing() -> None:
    assert rendered(CLEAN) == ""


def test_the_most_severe_are_first_and_what_is_not_proved_is_a_notice() -> None:
    torn = replace(LMDB, model="page-cache tear=512")
    rows = [read(row)[0] for row in rendered(run(torn, RECORD, uncertain=(UNCERTAIN,))).splitlines()]
    assert rows == ["error", "warning", "notice"]


def test_what_is_known_or_lived_with_is_not_annotated() -> None:
    known, accepted = replace(LMDB, new=False), replace(RECORD, suppressed="by design")
    error, last = (read(row) for row in rendered(run(known, accepted, LEVEL_HASH)).splitlines())
    assert error[0] == "error"
    assert last[0] == "notice"
    assert "file" not in last[1]
    assert last[2].splitlines()[0] == "1 suppressed finding not annotated:"
    assert last[2].splitlines()[1].endswith(f": by design ({RECORD.id})")


def test_one_last_notice_lists_what_github_drops_and_what_is_suppressed() -> None:
    findings = many(11).findings
    accepted = tuple(replace(RECORD, suppressed="by design") for _ in range(30))
    *_, last = rendered(replace(many(11), findings=(*findings, *accepted))).splitlines()
    rows = read(last)[2].splitlines()
    assert rows[0].startswith("1 error more")
    assert rows[1] == "30 suppressed findings not annotated:"
    assert len(rows) == 23
    assert rows[-1] == "… and 10 more"


def test_no_more_are_written_than_github_shows_and_the_rest_is_counted() -> None:
    torn = replace(LMDB, model="page-cache tear=512")
    result = replace(many(12), findings=(*many(12).findings, *(torn,) * 11), uncertain=(UNCERTAIN,) * 20)
    rows = [read(row) for row in rendered(result).splitlines()]
    assert [sum(name == level for name, _, _ in rows) for level in ("error", "warning", "notice")] == [10, 10, 10]
    assert rows[-1][2].startswith("2 errors, 1 warning, 11 notices more")


def test_ten_of_each_need_no_last_notice() -> None:
    result = replace(many(10), uncertain=(UNCERTAIN,) * 10)
    assert len(rendered(result).splitlines()) == 20
    assert "more" not in rendered(result)


def test_hostile_text_makes_no_command_of_its_own() -> None:
    text = rendered(hostile())
    text.encode("utf-8")
    rows = text.splitlines()
    assert [read(row)[0] for row in rows] == ["error", "notice"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert len(text) < 32_000


@given(st.text(), st.text(min_size=1))
def test_every_message_is_read_back_as_it_was_written(message: str, value: str) -> None:
    message = message.translate(dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")))
    row = workflow_commands.command("error", message, title=value)
    assert "\n" not in row
    assert "\r" not in row
    head, _, data = row.removeprefix("::error title=").partition("::")
    assert ":" not in head
    assert "," not in head
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        head = head.replace(code, character)
        data = data.replace(code, character)
    assert data == message
    assert head == value


def test_output_between_stop_commands_cannot_end_them() -> None:
    (first, last), (other, _) = workflow_commands.silence(), workflow_commands.silence()
    token = first.removeprefix("::stop-commands::").strip()
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert last == f"::{token}::\n"
    assert other != first
    assert workflow_commands.silence("t") == ("::stop-commands::t\n", "::t::\n")


def test_a_store_without_a_line_is_annotated_without_one() -> None:
    nowhere = replace(LEVEL_HASH, location=replace(LEVEL_HASH.location, file="/usr/x.h", stack=()))
    _, properties, _ = read(rendered(run(nowhere)).strip())
    assert properties == {"title": "crashcheck: Ordering [px86]"}


def test_full() -> None:
    golden.check("full.github", rendered(FULL))
