"""The report as JUnit XML: one failed test case per finding, for CI systems that show test results.

Groups of update behaviours are not test cases: they have no identity from run to run, so a history of them would mean
nothing.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from crashcheck.checker.results import StopReason
from crashcheck.reports.github.annotations import fix_text
from crashcheck.reports.view.run_view import FindingView, RunView
from crashcheck.reports.view.text import line, shorten

# All that is no character of XML 1.0 (https://www.w3.org/TR/xml/#charsets); the view leaves few of them.
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
CASES_MAX = 2000
SUITE = "crashcheck"
BROKEN_OFF = tuple(reason.value for reason in StopReason if reason.broken_off)


def render(view: RunView) -> str:
    """The document; the same view gives the same bytes.

    A finding that counts is a failure; one that is known, suppressed, not proved or a note is skipped, with the reason.
    A test case "crash states" represents the search itself: it is an error where the search was broken off or has no
    verdict.
    """
    shown = view.all_findings
    stopped = next((fact.value for fact in view.run if fact.label == "stopped"), "")
    suite = ET.Element("testsuite", name=SUITE)
    properties = ET.SubElement(suite, "properties")
    for fact in (*view.counts, *view.run):
        ET.SubElement(properties, "property", name=_text(fact.label), value=_text(fact.value))
    for caveat in view.caveats:
        ET.SubElement(properties, "property", name="caveat", value=_text(caveat))
    search = ET.SubElement(suite, "testcase", classname=SUITE, name=_text(f"{view.unit}s"))
    why = stopped if stopped in BROKEN_OFF else view.no_verdict
    if why:
        error = ET.SubElement(search, "error", type=why, message=_text(view.headline))
        error.text = _text(view.scope)
    for finding in shown[:CASES_MAX]:
        _case(suite, finding)
    if len(shown) > CASES_MAX:
        case = ET.SubElement(suite, "testcase", classname=SUITE, name="findings left out here")
        ET.SubElement(case, "skipped", message=f"{len(shown) - CASES_MAX:,} more are in the JSON report")
    output = ET.SubElement(suite, "system-out")
    output.text = _text("\n".join((view.counted, view.scope, *view.caveats, *view.warnings)))
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f".//{tag}"))))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _case(suite: ET.Element, finding: FindingView) -> None:
    place = finding.place
    # CI systems fold by class and keep a history by class and name: neither holds a line number.
    classname = ".".join(part for part in (SUITE, finding.kind, place.function) if part)
    case = ET.SubElement(suite, "testcase", classname=_text(classname), name=_text(finding.id))
    if place.file:
        case.set("file", _text(line(place.file, 1000)))
    if place.line:
        case.set("line", str(place.line))
    reason = (
        f"suppressed: {finding.suppressed}"
        if finding.suppressed
        else f"not proved: {finding.uncertain}"
        if finding.uncertain
        else finding.why_not or ("a note" if finding.level == "note" else "")
    )
    if reason:
        ET.SubElement(case, "skipped", message=_text(shorten(f"{reason}: {finding.message}", 1000)))
    else:
        failure = ET.SubElement(case, "failure", type=_text(finding.kind), message=_text(finding.message))
        failure.text = _text("\n".join(_details(finding)))
        if finding.output:
            output = ET.SubElement(case, "system-out")
            output.text = _text("\n".join(finding.output))


def _details(finding: FindingView) -> list[str]:
    shown = finding.evidence
    rows = ["", shown.sentence, shown.assumes, *finding.notes, ""]
    rows += [f"{spot.tag or '-'} {spot.role}: {spot.where}  {spot.function}" for spot in shown.places]
    words = "; ".join(filter(None, (finding.outcome, finding.states, finding.found)))
    rows += ["", *shown.rows, "", f"After the {shown.occasion}, {words}.", ""]
    if finding.fix is not None:
        rows += [f"Suggested fix: {fix_text(finding.fix)}", *finding.fix.patch, ""]
    return [*rows, f"Reproduce: {finding.replay}", ""]


def _text(text: str) -> str:
    return _NO_CHARACTER.sub("\ufffd", text)
