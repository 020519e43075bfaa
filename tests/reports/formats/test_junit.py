"""JUnit XML is well-formed whatever a program prints, and fails what counts, only that."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from crashcheck.checker.results import RunResult, StopReason
from crashcheck.reports.formats import junit
from crashcheck.reports.view.run_view import build_view
from support.reports import golden
from support.reports.runs import (
    ALL,
    CLEAN,
    FULL,
    LEVEL_HASH,
    LMDB,
    ONE,
    RECORD,
    SOURCES,
    UNCERTAIN,
    hostile,
    many,
    run,
    with_fields,
)


def parsed(result: RunResult) -> ET.Element:
    return ET.fromstring(junit.render(build_view(result, SOURCES)))


def totals(suite: ET.Element) -> tuple[int, ...]:
    """Tests, failures, errors, skipped by the head; they must equal what follows."""
    declared = tuple(int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped"))
    tags = ("testcase", "failure", "error", "skipped")
    assert declared == tuple(len(suite.findall(f".//{tag}")) for tag in tags)
    return declared


def test_a_clean_run_is_one_test_that_passed() -> None:
    assert totals(parsed(CLEAN)) == (1, 0, 0, 0)


def test_a_finding_is_a_failed_test_and_one_not_proved_a_skipped_one() -> None:
    golden.check("full.xml", junit.render(build_view(FULL, SOURCES)))
    assert totals(parsed(FULL)) == (5, 3, 0, 1)


def test_a_test_is_named_by_what_stays_when_lines_move() -> None:
    _, case = parsed(ONE).findall("testcase")
    assert case.attrib == {
        "classname": "crashcheck.ordering.put_entry",
        "name": "ORD-7f3a91c2",
        "file": "src/level_hash.c",
        "line": "9",
    }


def test_what_is_known_or_suppressed_is_skipped_with_the_reason() -> None:
    suite = parsed(run(LEVEL_HASH, replace(LMDB, new=False), replace(RECORD, suppressed="by design")))
    assert totals(suite) == (4, 1, 0, 2)
    reasons = [skipped.attrib["message"].split(": ")[0] for skipped in suite.findall(".//skipped")]
    assert reasons == ["in the baseline", "suppressed"]


def test_a_proved_finding_that_is_a_note_is_skipped() -> None:
    suite = parsed(run(LEVEL_HASH, replace(LMDB, model="px86 tear=8")))
    assert totals(suite) == (3, 1, 0, 1)
    (skipped,) = suite.findall(".//skipped")
    assert skipped.attrib["message"].startswith("a note: ")


def test_a_run_without_a_verdict_is_an_error() -> None:
    unproved = parsed(run(uncertain=(UNCERTAIN,)))
    assert totals(unproved) == (2, 0, 1, 1)
    nothing = parsed(run(states=replace(ALL, executed=0, pruned=0), stop=StopReason.BUDGET_SECONDS))
    assert totals(nothing) == (1, 0, 1, 0)
    types = [error.attrib["type"] for suite in (unproved, nothing) for error in suite.findall(".//error")]
    assert types == ["uncertain", "nothing-checked"]
    assert totals(parsed(run(uncertain=(replace(UNCERTAIN, new=False),)))) == (2, 0, 0, 1)


def test_a_search_that_was_broken_off_is_an_error() -> None:
    suite = parsed(run(stop=StopReason.INTERRUPTED))
    assert totals(suite) == (1, 0, 1, 0)


def test_hostile_text_leaves_well_formed_xml() -> None:
    text = junit.render(build_view(hostile()))
    assert totals(ET.fromstring(text)) == (3, 1, 0, 1)
    assert len(text.encode("utf-8")) < 128 * 1024


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_characters_leave_well_formed_xml(text: str) -> None:
    finding = with_fields(LEVEL_HASH, id=text, message=text, verdict=replace(LEVEL_HASH.evidence.verdict, output=text))
    made = junit.render(build_view(run(replace(finding, location=replace(finding.location, file=text)))))
    assert totals(ET.fromstring(made.encode("utf-8"))) == (2, 1, 0, 0)


def test_a_document_is_bounded() -> None:
    assert totals(parsed(many(2100)))[0] == 2002
