"""SARIF obeys its schema, keeps GitHub's limits, and names the repository's files."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from jsonschema import Draft202012Validator

from crashcheck.checker.results import Frame, RunResult, StopReason
from crashcheck.reports.formats import sarif
from crashcheck.reports.formats.sarif import line_hashes
from crashcheck.reports.view.run_view import build_view
from support.reports import golden
from support.reports.runs import (
    CLEAN,
    FIXED,
    FULL,
    KILLED,
    LEVEL_HASH,
    LEVEL_HASH_C,
    LMDB,
    ONE,
    RECORD,
    VALID,
    hostile,
    long_names,
    many,
    run,
    with_fields,
)

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text("utf-8"))
SOURCES = {"src/level_hash.c": (*LEVEL_HASH_C, "")}


def name(file: str) -> str:
    return "" if file.startswith("/") else file


def rendered(result: RunResult) -> str:
    return sarif.render(result, build_view(result, SOURCES), name, SOURCES)


def log(result: RunResult) -> dict[str, Any]:
    """The one run of the log, which obeys the schema."""
    document = json.loads(rendered(result))
    Draft202012Validator(SCHEMA).validate(document)
    (only,) = document["runs"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize(
    "result", [CLEAN, ONE, FULL, run(KILLED), many(100)], ids=["none", "one", "full", "cut", "many"]
)
def test_every_log_obeys_the_schema(result: RunResult) -> None:
    assert len(log(result)["results"]) == len(result.findings) + len(result.uncertain)


def test_the_same_run_gives_the_same_bytes() -> None:
    assert rendered(FULL) == rendered(FULL)
    golden.check("full.sarif", rendered(FULL))


def test_a_rule_describes_what_to_do() -> None:
    rules = log(CLEAN)["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [
        "crash-ordering",
        "crash-atomicity",
        "crash-unpersisted",
        "crash-recovery-failure",
        "crash-reopen",
        "crash-actions",
    ]
    for rule in rules:
        assert rule["help"]["text"]
        assert "**What to do.**" in rule["help"]["markdown"]
        assert rule["properties"]["precision"] == "very-high"
        assert rule["properties"]["problem.severity"] == "error"


def test_a_result_is_at_the_store_and_links_to_the_other_store() -> None:
    (result,) = log(ONE)["results"]
    assert result["ruleId"] == log(ONE)["tool"]["driver"]["rules"][result["ruleIndex"]]["id"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/level_hash.c", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 9, "startColumn": 5},
    }
    other = result["relatedLocations"][0]
    assert (other["id"], other["physicalLocation"]["region"]["startLine"]) == (1, 8)
    assert "[the other store, lost: entry.value](1)" in result["message"]["text"]


@pytest.mark.parametrize("result", [FULL, hostile], ids=["full", "hostile"], indirect=True)
def test_each_link_of_a_message_leads_to_a_related_location(result: RunResult) -> None:
    for found in log(result)["results"]:
        links = re.findall(r"(?<!\\)\]\((\d+)\)", found["message"]["text"])
        assert links == [str(related["id"]) for related in found.get("relatedLocations", ())]


def test_the_code_flow_is_the_crash_schedule_and_ends_with_the_crash() -> None:
    (flow,) = log(ONE)["results"][0]["codeFlows"]
    (thread,) = flow["threadFlows"]
    texts = [step["location"]["message"]["text"] for step in thread["locations"]]
    assert texts[0].startswith("mark operation 2 begins; store entry.key")
    assert "A: store token.valid = 01 survived (cache line 40, 1 B at 0xa05)" in texts
    assert texts[-1] == (
        "crash before the fence at src/level_hash.c:12, in operation 3; 2 operations acknowledged; "
        "then the check exited with status 3"
    )
    assert thread["locations"][-1]["location"]["physicalLocation"]["region"]["startLine"] == 12


def test_each_thread_has_its_flow_in_one_order() -> None:
    (flow,) = log(run(LMDB))["results"][0]["codeFlows"]
    orders = {thread["id"]: [step["executionOrder"] for step in thread["locations"]] for thread in flow["threadFlows"]}
    assert orders == {"thread 1": [2, 3], "thread 2": [5, 7]}


def test_the_steps_that_the_crash_prevented_are_after_it() -> None:
    (flow,) = log(run(KILLED))["results"][0]["codeFlows"]
    (thread,) = flow["threadFlows"]
    texts = [step["location"]["message"]["text"].split(" ")[0] for step in thread["locations"]]
    assert texts == ["mark", "crash", "B:"]
    orders = [step["executionOrder"] for step in thread["locations"]]
    assert orders == sorted(set(orders))


def test_a_deeper_call_is_nested() -> None:
    deep = replace(VALID, stack=(Frame("inner", "level_hash.c", 20), *VALID.stack))
    schedule = (*LEVEL_HASH.evidence.schedule[:-1], replace(LEVEL_HASH.evidence.schedule[-1], location=deep))
    (flow,) = log(run(with_fields(LEVEL_HASH, schedule=schedule)))["results"][0]["codeFlows"]
    assert [step.get("nestingLevel") for step in flow["threadFlows"][0]["locations"]][-3:] == [0, 1, None]


def test_a_fix_is_described_in_the_message() -> None:
    (result,) = log(run(FIXED))["results"]
    assert (
        "Suggested fix: flush and fence `entry.value` before `token.valid` is stored; "
        "with this edit: 0 of 6 failing states fail" in result["message"]["text"]
    )


def test_levels_follow_the_severity() -> None:
    torn = replace(LMDB, model="page-cache tear=512")
    assert [result["level"] for result in log(run(LEVEL_HASH, torn, uncertain=FULL.uncertain))["results"]] == [
        "error",
        "warning",
        "note",
    ]


def test_what_is_suppressed_is_left_out_and_counted_and_what_is_known_is_marked() -> None:
    made = log(run(LEVEL_HASH, replace(LMDB, new=False), replace(RECORD, suppressed="by design")))
    assert [result.get("baselineState") for result in made["results"]] == [None, "unchanged"]
    texts = [note["message"]["text"] for note in made["invocations"][0]["toolExecutionNotifications"]]
    assert texts[-2] == "1 suppressed finding left out."
    notification = made["invocations"][0]["toolExecutionNotifications"][-1]
    assert notification["message"]["text"].startswith("Suppressed (by design): ")
    assert RECORD.id in notification["message"]["text"]
    assert notification["associatedRule"] == {"id": f"crash-{RECORD.kind.value}"}
    (where,) = notification["locations"]
    assert where["physicalLocation"]["region"] == {"startLine": RECORD.location.line}


def test_an_interrupted_run_was_not_successful_and_caveats_are_notifications() -> None:
    (invocation,) = log(replace(FULL, stop_reason=StopReason.INTERRUPTED))["invocations"]
    assert invocation["executionSuccessful"] is False
    texts = [note["message"]["text"] for note in invocation["toolExecutionNotifications"] if note["level"] == "warning"]
    cause = "the check hangs on similar ones, or everything fails at that moment"
    assert f"2 states were postponed to the end and not checked: {cause}." in texts
    assert "the workload wrote to stderr: 3 lines" in texts
    assert log(FULL)["invocations"][0]["executionSuccessful"] is True


def test_alerts_of_another_model_or_configuration_are_kept_apart() -> None:
    ids = {
        log(result)["automationDetails"]["id"]
        for result in (ONE, replace(ONE, model="eadr"), replace(ONE, config_path="db/crashcheck.toml"))
    }
    assert ids == {
        "crashcheck/crashcheck.toml/px86/",
        "crashcheck/crashcheck.toml/eadr/",
        "crashcheck/db/crashcheck.toml/px86/",
    }


def test_a_path_is_encoded_and_one_outside_is_absolute() -> None:
    odd = replace(VALID, file="src/a b#1 [x]:%é.c")
    outside = replace(LEVEL_HASH.location, file="/usr/include/lib x.h", stack=(Frame("put", "src/use.c", 5),))
    first, second = log(run(replace(LEVEL_HASH, location=odd), replace(LEVEL_HASH, location=outside)))["results"]
    uri = first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "src/a%20b%231%20%5Bx%5D%3A%25%C3%A9.c"
    assert unquote(uri) == odd.file
    assert second["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/use.c", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 5},
    }
    assert second["relatedLocations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "file:///usr/include/lib%20x.h"
    }


def test_a_finding_without_a_place_is_shown_at_the_configuration() -> None:
    nowhere = replace(VALID, file="", line=0, stack=())
    (result,) = log(run(with_fields(LEVEL_HASH, location=nowhere, other=None)))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "crashcheck.toml"


def test_the_line_hash_is_that_of_code_scanning_once_for_each_line() -> None:
    twin = replace(LEVEL_HASH, id="ORD-00000001")
    first, second, third = log(run(LEVEL_HASH, twin, LMDB))["results"]
    expected = line_hashes("\n".join(SOURCES["src/level_hash.c"]))[8]
    assert first["partialFingerprints"]["primaryLocationLineHash"] == expected
    assert second["partialFingerprints"]["primaryLocationLineHash"] == "ordering/ORD-00000001"
    assert third["partialFingerprints"]["primaryLocationLineHash"] == "ordering/ORD-02c4d6aa"


@pytest.mark.parametrize(
    ("text", "hashes"),
    [
        ("", "c129715d7a2bc9a3:1"),
        (" a\nb\n  \t\tc\n d", "271789c17abda88f:1 54703d4cd895b18:1 180aee12dab6264:1 a23a3dc5e078b07b:1"),
        (
            " hello; \t\nworld!!!\r\n\n\r  \t\tGreetings\r End\r\n",
            "e9496ae3ebfced30:1 fb7c023a8b9ccb3f:1 ce8ba1a563dcdaca:1 e20e36e16fcb0cc8:1 b3edc88f2938467e:1 "
            "c8e28b0b4002a3a0:1 c129715d7a2bc9a3:1",
        ),
        (
            "Lorem ipsum dolor sit amet.\n" * 10,
            "a7f2ff13bc495cf2:1 a7f2ff13bc495cf2:2 a7f2ff13bc495cf2:3 a7f2ff13bc495cf2:4 a7f2ff13bc495cf2:5 "
            "a7f2ff13bc495cf2:6 a7f2ff1481e87703:1 a9cf91f7bbf1862b:1 55ec222b86bcae53:1 cc97dc7b1d7d8f7b:1 "
            "c129715d7a2bc9a3:1",
        ),
    ],
    ids=["empty", "blanks", "line-ends", "repeated"],
)
def test_line_hashes_are_those_that_codeql_action_is_tested_with(text: str, hashes: str) -> None:
    assert " ".join(line_hashes(text)) == hashes


def test_hostile_text_links_nowhere_and_is_bounded() -> None:
    text = rendered(hostile())
    assert len(text.encode("utf-8")) < 256 * 1024
    for result in log(hostile())["results"]:
        assert not re.search(r"(?<!\\)\]\((?![0-9]+\))", result["message"]["text"])
    link = replace(LEVEL_HASH, message="[click](http://evil.example) \\[x](1)")
    (result,) = log(run(link))["results"]
    assert result["message"]["text"].startswith("\\[click\\](http://evil.example) \\\\\\[x\\](1).")


@pytest.mark.parametrize("result", [many(1000), long_names(500)], ids=["many", "long"])
def test_a_large_log_keeps_the_limits_of_code_scanning(result: RunResult) -> None:
    text = rendered(result)
    assert len(gzip.compress(text.encode())) < 10_000_000
    made = json.loads(text)["runs"][0]
    assert len(made["results"]) == len(result.findings)
    for found in made["results"]:
        steps = [
            step
            for flow in found.get("codeFlows", ())
            for thread in flow["threadFlows"]
            for step in thread["locations"]
        ]
        assert len(steps) <= 10_000


def test_what_makes_a_log_too_large_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "GZIP_MAX", 11_500)
    monkeypatch.setattr(sarif, "RESULTS_MAX", 150)
    made = log(many(200))
    assert len(made["results"]) == 150
    assert sum("codeFlows" in result for result in made["results"]) == 100
    texts = [note["message"]["text"] for note in made["invocations"][0]["toolExecutionNotifications"]]
    assert "50 findings left out: a file holds 150." in texts
    assert "50 findings are listed without their schedule." in texts
