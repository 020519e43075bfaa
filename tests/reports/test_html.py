"""The HTML report is one safe file of bounded size, and a person can step through it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from crashcheck.checker.result import RunResult
from crashcheck.reports import html
from crashcheck.reports.view import build_view

from . import golden
from .browser import Browser
from .fixtures import CLEAN, FULL, ONE, SOURCES, hostile, long_names, many

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
    "result", [CLEAN, ONE, FULL, hostile(), many(100)], ids=["none", "one", "full", "hostile", "hundred"]
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
def test_a_hundred_findings_stay_under_two_mebibytes(result: RunResult) -> None:
    assert len(html.render(build_view(result, SOURCES)).encode("utf-8")) < 2 * 2**20


def test_hostile_text_is_escaped_and_bounded() -> None:
    page = html.render(build_view(hostile()))
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "49`" not in page
    assert len(page.encode("utf-8")) < 256 * 1024


def test_the_headline_is_the_first_thing_said() -> None:
    part = replace(FULL, findings=(), uncertain=())
    page = html.render(build_view(part))
    assert '<h1 class="partial">No findings in 412 of 10⁷⁷ feasible crash states</h1>' in page


def test_the_same_run_gives_the_same_bytes() -> None:
    page = html.render(build_view(FULL, SOURCES))
    assert page == html.render(build_view(FULL, SOURCES))
    body = re.sub(r"(?s)<style>.*?</style>|<script>.*?</script>|'sha256-[^']*'", "", page)
    golden.check("full.html", body)


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


@pytest.mark.slow
def test_the_schedule_is_stepped_with_keys_and_buttons(tmp_path: Path, browser: Browser) -> None:
    with browser:
        browser.open(write(tmp_path, FULL))
        assert browser.run(AT) == "14"
        assert browser.run(SAID).startswith("Crash before the fence at src/level_hash.c:12")
        browser.run("document.querySelector('#f1 .scroll').focus()")
        browser.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
        assert browser.run(SAID) == "Step 12: store token.valid = 01 · survived · src/level_hash.c:9"
        assert browser.run("return document.querySelector('#f1 tr[aria-current=step] td').textContent") == "12"
        assert browser.run("return document.querySelectorAll('#f1 svg g.s.future').length") == 2
        browser.press("Home")
        assert browser.run(AT) == "0"
        browser.run("document.querySelector('#f1 [data-go=on]').click()")
        assert browser.run(SAID).startswith("Step 2: store entry.key = 29")
        browser.press("End")
        assert browser.run(AT) == "14"
        assert browser.run("return document.querySelectorAll('#f1 g.future').length") == 0
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
