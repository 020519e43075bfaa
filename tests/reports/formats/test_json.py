"""The JSON report obeys its schema, whatever was found, and never changes by itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from crashcheck.checker.results import RunResult
from crashcheck.reports.formats import json_report
from support.reports import golden, schema
from support.reports.runs import CLEAN, FULL, ONE, SOME, hostile, many, run


def validate(text: str) -> None:
    Draft202012Validator(schema.published(), format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
        json.loads(text)
    )


def test_the_published_schema_is_the_one_of_the_dataclasses() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        schema.PATH.write_text(schema.generated(), encoding="utf-8")
    assert schema.PATH.read_text("utf-8") == schema.generated()


def test_the_schema_describes_what_each_field_means() -> None:
    whole = schema.published()
    parts = {"Document": whole, **whole["$defs"]}
    fields = {(name, field): of for name, part in parts.items() for field, of in part.get("properties", {}).items()}
    assert [name for name, of in fields.items() if not of.get("description")] == []


def test_the_schema_is_itself_valid() -> None:
    Draft202012Validator.check_schema(schema.published())


@pytest.mark.parametrize("result", [CLEAN, ONE, FULL, many(100)], ids=["none", "one", "full", "hundred"])
def test_every_report_obeys_the_schema(result: RunResult) -> None:
    validate(json_report.render(result))


def test_hostile_text_is_bounded_and_leaves_valid_utf8() -> None:
    text = json_report.render(hostile())
    validate(text)
    assert len(text.encode("utf-8")) < 1024 * 1024


def test_the_schema_describes_every_field_that_is_written() -> None:
    """`additionalProperties` is open for newer versions, so a field without a description must fail here."""
    strict = json.loads(
        json.dumps(schema.published()).replace('"additionalProperties": true', '"additionalProperties": false')
    )
    Draft202012Validator({key: value for key, value in strict.items() if key != "$id"}).validate(
        json_report.document(FULL)
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), 1),
        (("run", "stop_reason"), "tired"),
        (("run", "states", "feasible"), 2**53),
        (("findings",), None),
    ],
)
def test_a_document_that_breaks_the_contract_is_refused(path: tuple[str, ...], value: object) -> None:
    broken = json.loads(json_report.render(ONE))
    inner = broken
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert not Draft202012Validator(schema.published()).is_valid(broken)


def test_a_count_of_ten_to_the_three_hundred_survives() -> None:
    states = json.loads(json_report.render(run(states=replace(SOME, feasible=10**300))))["run"]["states"]
    assert states["feasible"] == "1" + "0" * 300
    assert states["feasible_exact"] is True
    assert states["executed"] == 400


def test_the_fields_that_were_promised_first_are_where_they_were_promised() -> None:
    document = json.loads(json_report.render(ONE))
    assert document["schema"] == 2
    assert {"stop_reason", "states", "trace", "seconds"} <= document["run"].keys()
    assert {"feasible", "executed", "pruned", "skipped", "failing", "flaky"} <= document["run"]["states"].keys()
    finding = document["findings"][0]
    assert {"id", "kind", "model", "location", "other", "message", "schedule", "replay"} <= finding.keys()
    assert finding["location"]["file"] == "src/level_hash.c"
    assert finding["location"]["line"] == 9
    assert finding["other"]["function"] == "put_entry"


def test_the_same_run_gives_the_same_bytes() -> None:
    assert json_report.render(FULL) == json_report.render(FULL)
    golden.check("full.json", json_report.render(FULL))
