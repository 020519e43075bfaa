"""The HTML report is one safe file of bounded size, and a person can step through it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from crashcheck.checker.results import Base, RunResult
from crashcheck.reports.formats import html
from crashcheck.reports.view.run_view import build_view
from support.browser import Browser
from support.reports import golden
from support.reports.runs import CLEAN, FULL, LEVEL_HASH, ONE, SOURCES, hostile, long_names, many, with_fields

DRAWN = replace(
    FULL,
    groups=(
        replace(
            FULL.groups[0],
            nodes=tuple(replace(node, state="") for node in LEVEL_HASH.evidence.nodes),
            edges=LEVEL_HASH.evidence.edges,
        ),
        *FULL.groups[1:],
    ),
)
VOID = {"meta", "link", "br", "input"}


class Outline(HTMLParser):
    """The tags of a page, their ids and the attributes that could act or fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.acts: list[tuple[str, str | None]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name.startswith("on") or name in ("src", "href", "style", "action", "xlink:href"):
                self.acts.append((name, value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


ALL_RUNS = pytest.mark.parametrize(
    "result",
    [CLEAN, ONE, FULL, hostile, many(100)],
    ids=["none", "one", "full", "hostile", "hundred"],
    indirect=True,
)


@ALL_RUNS
def test_the_page_is_well_formed_and_reaches_for_nothing_outside(result: RunResult) -> None:
    outline = Outline(html.render(build_view(result, SOURCES)))
    assert outline.open == []
    assert outline.seen.count("script") == 1
    assert len(outline.ids) == len(set(outline.ids))
    assert [act for act in outline.acts if act[0] != "href"] == []
    assert all(re.fullmatch(r"#\w+|data:,", value or "") for _, value in outline.acts)


@pytest.mark.parametrize("result", [many(100), long_names(100)], ids=["c", "c++"])
def test_a_hundred_findings_stay_under_one_mebibyte(result: RunResult) -> None:
    assert len(html.render(build_view(result, SOURCES)).encode("utf-8")) < 2**20


def test_hostile_text_is_escaped_and_bounded() -> None:
    page = html.render(build_view(hostile()))
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "49`" not in page
    assert len(page.encode("utf-8")) < 256 * 1024


def test_the_headline_is_the_first_text() -> None:
    part = replace(FULL, findings=(), uncertain=())
    page = html.render(build_view(part))
    assert '<h1 class="partial">No findings; 412 of 10⁷⁷ feasible crash states checked</h1>' in page


def test_a_change_of_documents_shows_no_counts_and_no_trace() -> None:
    page = html.render(build_view(replace(CLEAN, base=Base("main", "0" * 40, documents=("README.md",)))))
    assert "Nothing was searched." in page
    assert "feasible" not in page
    assert "accounted for" not in page


def test_the_same_run_gives_the_same_bytes() -> None:
    page = html.render(build_view(FULL, SOURCES))
    assert page == html.render(build_view(FULL, SOURCES))
    body = re.sub(r"(?s)<style>.*?</style>|<script>.*?</script>|&#39;sha256-.*?&#39;", "", page)
    golden.check("full.html", body)


def test_two_close_stores_are_one_excerpt_with_both_marks_and_the_fix_beside_it() -> None:
    page = html.render(build_view(ONE, SOURCES))
    assert page.count('<div class="place both">') == 1
    card = page[page.index('<div class="place both">') :]
    assert re.findall(r"<i>(\d+)</i>[^<]*<b class=\"tag\">(\w)", card[: card.index("</pre>")]) == [
        ("8", "B"),
        ("9", "A"),
    ]
    (finding,) = ONE.findings
    assert finding.evidence.other is not None
    apart = replace(ONE, findings=(with_fields(finding, other=replace(finding.evidence.other, function="elsewhere")),))
    assert '<div class="place both">' not in html.render(build_view(apart, SOURCES))


def test_a_group_is_a_row_with_its_reasons_and_its_graph() -> None:
    page = html.render(build_view(DRAWN, SOURCES))
    groups = page[page.index('<section class="groups">') : page.index('<section class="about">')]
    assert groups.count("<details") == 3  # the table itself is folded
    assert groups.count('<svg class="pic graph"') == 1
    row = groups[groups.index('<li><details class="group') :]
    first = re.sub(r"<[^>]*>", "|", row[: row.index("</summary>")])
    assert [part for part in first.split("|") if part.strip()] == [
        *("rank ", "1", "token, entry", "members ", "40", "table.pm+448, operation 13", "updates ", "3"),
        *("states run ", "8, feasible 6", "explored ", "to the end", "fails"),
    ]
    assert "No graph is drawn here" in groups


def test_what_is_known_suppressed_or_in_the_diff_is_named_and_listed() -> None:
    hash_, pages, record = FULL.findings
    marked = (replace(hash_, in_diff=True), replace(pages, new=False), replace(record, suppressed="old (a.c:1)"))
    page = html.render(build_view(replace(FULL, findings=marked)))
    assert "3 findings (1 new of which 1 in the diff, 1 known, 1 suppressed) and 1 uncertain finding" in page
    assert "Suppressed: old (a.c:1)" in page
    assert page.count('class="standing"') == 6
    quiet = build_view(replace(FULL, findings=marked[1:]))
    assert quiet.status == "partial"


def test_without_a_script_the_steps_are_a_list_that_describes_each() -> None:
    page = html.render(build_view(ONE, SOURCES))
    assert '<b>fence</b> <code>sfence</code> <span class="effect">→ durable now: 2, 3, 4</span>' in page
    assert page.count("<output") == 1  # in the template that the script takes its controls from
    assert '<span class="l hit" data-at="3 11"><i>9</i>' in page


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    if shutil.which("chromedriver") is None:
        pytest.fail("this test drives a browser: install Debian's chromium and chromium-driver")
    return Browser(tmp_path / "profile")


def write(folder: Path, result: RunResult) -> Path:
    page = folder / "report.html"
    page.write_text(html.render(build_view(result, SOURCES)), encoding="utf-8")
    return page


AT = "return document.querySelector('#f1 .sched').dataset.at"
SAID = "return document.querySelector('#f1 output').textContent"


BOARD = """
return Object.fromEntries([...document.querySelectorAll('#f1 .board section')].map(column =>
  [column.dataset.c, [...column.querySelectorAll('li')].map(chip => chip.textContent).join(', ')]))"""
HERE = """
return [...document.querySelectorAll('#f1 .walk .l.now')].map(line =>
  line.querySelector('i').textContent + ' ' + line.querySelector('em').textContent)"""
OLD = "2 entry.key, 3 entry.value, 4 token.valid"
STEPS = (
    # announced, in the cache, on its way, durable, source line
    ("Step 1: mark operation 2 begins. Now no update yet.", "", "", "", ""),
    (
        "Step 2: store entry.key = 29 00 00 00 00 00 00 00 · in the cache · src/level_hash.c:7. Now in the cache 1.",
        "2 entry.key",
        "",
        "",
        "7 step 2: in the cache",
    ),
    (
        "Step 3: store entry.value = 29 29 00 00 00 00 00 00 · in the cache · src/level_hash.c:8. Now in the cache 2.",
        "2 entry.key, 3 entry.value",
        "",
        "",
        "8 step 3: in the cache",
    ),
    (
        "Step 4: store token.valid = 01 · in the cache · src/level_hash.c:9. Now in the cache 3.",
        OLD,
        "",
        "",
        "9 step 4: in the cache",
    ),
    (
        "Step 5: flush clwb → on the way: 2, 3 · src/level_hash.c:10. Now in the cache 1, on its way 2.",
        "4 token.valid",
        "2 entry.key, 3 entry.value",
        "",
        "10 step 5",
    ),
    ("Step 6: flush clwb → on the way: 4 · src/level_hash.c:11. Now on its way 3.", "", OLD, "", "11 step 6"),
    ("Step 7: fence sfence → durable now: 2, 3, 4 · src/level_hash.c:12. Now durable 3.", "", "", OLD, "12 step 7"),
    ("Step 8: mark operation 2 ends. Now durable 3.", "", "", OLD, ""),
    ("Step 9: mark operation 3 begins. Now durable 3.", "", "", OLD, ""),
    (
        "Step 10: store entry.key = 2a 00 00 00 00 00 00 00 · in the cache · src/level_hash.c:7. "
        "Now in the cache 1, durable 3.",
        "10 entry.key",
        "",
        OLD,
        "7 step 10: in the cache",
    ),
    (
        "Step 11: store entry.value = 2a 2a 00 00 00 00 00 00 · in the cache · src/level_hash.c:8. "
        "Now in the cache 2, durable 3.",
        "10 entry.key, 11 B entry.value",
        "",
        OLD,
        "8 step 11: in the cache",
    ),
    (
        "Step 12: store token.valid = 01 · in the cache · src/level_hash.c:9. Now in the cache 3, durable 3.",
        "10 entry.key, 11 B entry.value, 12 A token.valid",
        "",
        OLD,
        "9 step 12: in the cache",
    ),
    (
        "Step 13: flush clwb → on the way: 10, 11 · src/level_hash.c:10. Now in the cache 1, on its way 2, durable 3.",
        "12 A token.valid",
        "10 entry.key, 11 B entry.value",
        OLD,
        "10 step 13",
    ),
    (
        "Step 14: flush clwb → on the way: 12 · src/level_hash.c:11. Now on its way 3, durable 3.",
        "",
        "10 entry.key, 11 B entry.value, 12 A token.valid",
        OLD,
        "11 step 14",
    ),
)
LEFT = {
    "cache": "",
    "pending": "",
    "durable": OLD,
    "persisted": "12 A token.valid",
    "lost": "10 entry.key, 11 B entry.value",
}


@pytest.mark.slow
def test_each_step_shows_where_every_update_is_then_what_the_crash_left_then_what_the_check_prints(
    tmp_path: Path, browser: Browser
) -> None:
    with browser:
        browser.open(write(tmp_path, FULL))
        assert browser.run(AT) == "15"  # the end, until somebody steps
        browser.run("document.querySelector('#f1 .scroll').focus()")
        browser.press("Home")
        for said, cache, pending, durable, source in STEPS:
            assert browser.run(SAID) == said
            shown = {"cache": cache, "pending": pending, "durable": durable, "persisted": "", "lost": ""}
            assert browser.run(BOARD) == shown
            assert browser.run(HERE) == ([source] if source else [])
            number = said.removeprefix("Step ").split(":")[0]
            assert browser.run("return document.querySelector('#f1 tr[aria-current=step] td').textContent") == number
            browser.press("ArrowRight")
        assert browser.run(SAID) == (
            "Crash before the fence at src/level_hash.c:12, in operation 3; 2 operations acknowledged. "
            "Now durable 3, survived 1, lost 2."
        )
        assert browser.run(BOARD) == LEFT
        assert browser.run(HERE) == ["12 crash before this"]
        assert browser.run("return document.querySelector('#f1 .judged').hidden") is True
        browser.press("ArrowRight")
        assert browser.run(SAID) == "Check: the check exited with status 3. Now durable 3, survived 1, lost 2."
        assert browser.run("return document.querySelector('#f1 .judged').textContent") == (
            "Check the check exited with status 3"
        )
        browser.press("ArrowRight")
        assert browser.run(AT) == "15"
        assert browser.complaints() == []


@pytest.mark.slow
def test_keys_and_buttons_step_back_and_forth_and_show_when_there_is_no_further(
    tmp_path: Path, browser: Browser
) -> None:
    with browser:
        browser.open(write(tmp_path, FULL))
        browser.run("document.querySelector('#f1 .scroll').focus()")
        browser.press("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft")
        assert browser.run(AT) == "11"
        assert browser.run("return document.querySelectorAll('#f1 svg g.s.future').length") == 2
        browser.press("Home", "ArrowLeft")
        assert browser.run(AT) == "0"
        stopped = "return [...document.querySelectorAll('#f1 [data-go][aria-disabled=true]')].map(b => b.dataset.go)"
        assert browser.run(stopped) == ["first", "back"]
        browser.run("document.querySelector('#f1 [data-go=on]').click()")
        assert browser.run(AT) == "1"
        browser.run("document.querySelector('#f1 [data-go=crash]').click()")
        assert browser.run(AT) == "14"
        browser.press("End")
        assert browser.run(AT) == "15"
        assert browser.run(stopped) == ["on", "check"]
        assert browser.run("return document.querySelectorAll('#f1 g.future').length") == 0


@pytest.mark.slow
def test_a_group_opens_by_keyboard_and_shows_its_graph(tmp_path: Path, browser: Browser) -> None:
    with browser:
        browser.open(write(tmp_path, DRAWN))
        browser.run("document.querySelector('.groups > details').open = true")
        browser.run("document.querySelector('.group summary').focus()")
        browser.press("Enter")
        assert browser.run("return document.querySelector('.group').open") is True
        assert browser.run("return document.querySelectorAll('.group[open] g.node').length") == 6
        assert browser.complaints() == []


@pytest.mark.slow
def test_findings_are_filtered_by_severity_and_text_without_a_complaint_of_the_policy(
    tmp_path: Path, browser: Browser
) -> None:
    shown = "return [...document.querySelectorAll('.finding')].filter(f => !f.hidden).map(f => f.id).join(' ')"
    listed = "return [...document.querySelectorAll('.index li')].filter(f => f.offsetParent).length"
    choose = "const it = document.querySelector('.filter {}'); it.value = '{}'; it.dispatchEvent(new Event('{}'))"
    with browser:
        browser.open(write(tmp_path, FULL))
        assert browser.run(shown) == "f1 f2 f3 f4"
        browser.run(choose.format("select", "note", "change"))
        assert (browser.run(shown), browser.run(listed)) == ("f4", 1)
        browser.run(choose.format("select", "", "change"))
        browser.run(choose.format("input", "journal.c LEN", "input"))
        assert (browser.run(shown), browser.run(listed)) == ("f3", 1)
        assert browser.run("return document.querySelector('.filter output').textContent") == "1 of 4 shown"
        assert browser.complaints() == []


@pytest.mark.slow
def test_a_link_opens_a_folded_finding_at_its_step(tmp_path: Path, browser: Browser) -> None:
    with browser:
        browser.open(write(tmp_path, many(20)), "#f17s3")
        assert browser.run("return document.getElementById('f17').open") is True
        assert browser.run("return document.querySelector('#f17 .sched').dataset.at") == "2"


@pytest.mark.slow
def test_the_theme_follows_the_system_until_it_is_chosen(tmp_path: Path, browser: Browser) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    with browser:
        page = write(tmp_path, ONE)
        browser.screen(1400, 900, dark=True)
        browser.open(page)
        dark = browser.run(paper)
        browser.screen(1400, 900, dark=False)
        light = browser.run(paper)
        assert dark != light
        browser.run("document.getElementById('theme').click()")
        assert browser.run(paper) == dark
        browser.run("document.getElementById('theme').click()")
        assert browser.run(paper) == light
        assert browser.run("return document.getElementById('theme').textContent") == "Theme: light"


PINS = """
return [...document.querySelectorAll('svg.graph')].flatMap(graph => {
  const seen = graph.closest('.scroll').getBoundingClientRect();
  return [...graph.querySelectorAll('.pin')].map(pin => pin.getBoundingClientRect())
    .map(pin => pin.width > 8 && pin.left >= seen.left && pin.right <= seen.right && pin.top >= seen.top);
})"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_both_updates_of_a_finding_are_in_sight_in_its_graph(tmp_path: Path, browser: Browser, width: int) -> None:
    with browser:
        browser.screen(width, 900)
        browser.open(write(tmp_path, FULL))
        assert browser.run(PINS) == [True] * 4


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 760, 1600])
def test_nothing_is_wider_than_the_screen_and_no_script_of_the_program_runs(
    tmp_path: Path, browser: Browser, width: int
) -> None:
    with browser:
        browser.screen(width, 900)
        for result in (FULL, hostile()):
            browser.open(write(tmp_path, result))
            assert browser.run("return document.documentElement.scrollWidth") <= width
            assert browser.complaints() == []
