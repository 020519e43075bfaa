"""Markdown for GitHub has the content of the other reports, fits GitHub's limits, and escapes the program's text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from crashcheck.checker.results import Base, Edit, Finding, Fix, RunResult
from crashcheck.reports.formats import markdown, markup
from crashcheck.reports.formats.markdown import COMMENT, SUMMARY, Limit
from crashcheck.reports.view.run_view import build_view
from support.reports import golden
from support.reports.runs import (
    CLEAN,
    FIXED,
    FULL,
    LEVEL_HASH,
    LMDB,
    ONE,
    RECORD,
    SOURCES,
    UNCERTAIN,
    hostile,
    long_names,
    many,
    run,
    with_fields,
)

MADE = {"details", "summary", "span", "p", "code", "pre", "h3", "ul", "li", "strong"}
MADE |= {"table", "thead", "tbody", "tr", "th", "td", "br"}


def rendered(result: RunResult, limit: Limit = SUMMARY) -> str:
    return markdown.render(build_view(result, SOURCES), limit)


class Page(HTMLParser):
    """What a browser would be given: every element, and the text outside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str | None]] = set()
        self.open: list[str] = []
        self.comments: list[str] = []
        self.plain = ""
        self.code: list[str] = []
        rendered = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
        self.feed(rendered)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {(name, None if name == "style" else value) for name, value in attrs}
        if tag != "br":
            self.open.append(tag)
        if tag == "code":
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        if "code" in self.open:
            self.code[-1] += data
        else:
            self.plain += data


@pytest.mark.parametrize(("name", "result"), [("clean", CLEAN), ("one", ONE), ("full", FULL), ("fixed", run(FIXED))])
def test_findings_are_rendered_as_in_the_golden_file(name: str, result: RunResult) -> None:
    golden.check(f"{name}.md", rendered(result))


def test_the_page_holds_the_elements_that_were_meant() -> None:
    page = Page(rendered(FULL))
    assert page.open == []
    assert set(page.tags) <= MADE
    assert page.tags.count("details") == 10  # four findings, each with its schedule; the warnings; the search
    assert page.tags.count("tr") == 5
    assert "A  212  survived  token.valid = 01" in "".join(page.code)
    assert "crashcheck replay cc1-aaaacmjrf2hqyq3wo5sgk3tfmq\n" in page.code


def test_more_than_five_findings_are_folded_with_their_details() -> None:
    five, seven = rendered(many(5)), rendered(many(7))
    assert " more</summary>" not in five
    table, _, rest = seven.partition("<details><summary>2 more</summary>")
    assert [table.count(f"\n| {number} |") for number in range(1, 8)] == [1, 1, 1, 1, 1, 0, 0]
    shown, _, folded = rest.partition("<details><summary>Details of 2 more</summary>")
    assert (shown.count("Reproduce:"), folded.count("Reproduce:")) == (5, 2)
    page = Page(seven)
    assert page.open == []
    assert page.tags.count("table") == 2
    cut = markdown.render(build_view(many(7)), Limit(len(seven) - 300, 10**6, "a note"))
    assert "Details of 2 more" in cut
    assert "The details of 1 finding are" in Page(cut).plain
    assert Page(cut).open == []


def test_names_in_the_line_of_a_fold_are_set_as_code() -> None:
    assert "<code>token.valid</code> at src/level_hash.c:9 may persist" in rendered(FULL)


def test_the_sentence_of_a_single_finding_is_shown_once_with_its_severity_and_identity() -> None:
    text = rendered(ONE)
    assert text.count("may persist before") == 1
    assert "| Place |" not in text
    assert "\n**Ordering** · error · `ORD-7f3a91c2`\n" in text


def test_a_single_finding_that_is_not_in_the_headline_has_its_sentence_in_its_section() -> None:
    text = rendered(run(uncertain=(UNCERTAIN,)))
    assert text.startswith("### crashcheck: No verdict: 1 uncertain finding")
    assert f"\n**Recovery failure, uncertain** · note · `{UNCERTAIN.id}` · recovery fails on a legal image: the" in text


def test_a_change_of_documents_shows_no_search() -> None:
    result = replace(run(), base=Base("main", "0" * 40, documents=("README.md",)))
    text = rendered(result)
    assert text == "### crashcheck: Nothing to check: the change since main holds documents only\n"


def test_what_was_not_covered_is_listed_before_the_findings() -> None:
    text = rendered(FULL)
    assert text.index("not instrumented") < text.index("| 1 | `src/level_hash.c:9`")


def test_what_is_known_or_suppressed_is_listed_apart() -> None:
    known, accepted = replace(LMDB, new=False), replace(RECORD, suppressed="by design | *really*")
    text = rendered(run(LEVEL_HASH, known, accepted))
    page = Page(text)
    assert "<details><summary>2 that do not count</summary>" in text
    assert "suppressed: by design | *really*" in page.plain
    assert "`MDB_meta.mm_txnid` at mdb.c:3911 may persist before" in text[text.index("2 that do not count") :]
    assert "cc1-aibacmjrgm4dsnzxgezdgnbv" not in text


@pytest.mark.parametrize("limit", [COMMENT, SUMMARY], ids=["comment", "summary"])
def test_hostile_text_adds_no_element_link_or_mention(limit: Limit) -> None:
    text = rendered(hostile(), limit)
    assert len(text.encode("utf-8")) < 64 * 1024
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    page = Page(text)
    assert page.open == []
    assert set(page.tags) <= MADE
    languages = {("class", f"language-{name}") for name in ("text", "sh", "diff")}
    assert page.attributes <= {*languages, ("open", ""), ("style", None)}
    assert page.comments == []
    assert page.tags.count("h3") == 1
    assert page.tags.count("tr") == 3


TRICKS = [
    "![x](http://evil.example/p.png)",
    "[click](javascript:alert(1))",
    "<img src=x onerror=alert(1)>",
    "<!-- crashcheck comment 0 -->",
    "-->",
    "</details></summary>",
    "@octocat @org/team",
    "#1 octo/repo#2 GH-3",
    "http://evil.example www.evil.example <http://evil.example>",
    "`` ` ``` ~~~",
    "| a | b |",
    "# heading",
    "&lt;script&gt; &#64;octocat",
    "\\` \\",
    "$x$ $$y$$",
    "*a* _b_ ~~c~~ __d__",
    "[x]: http://evil.example",
    "::error::x",
    "[^1] [!WARNING]",
    "\u200b\u202e\u2066",
]


def everywhere(trick: str) -> RunResult:
    """A run whose every text is `trick`."""
    place = replace(LEVEL_HASH.location, file=trick, function=trick, variable=trick, text=trick)
    bad: Finding = with_fields(
        LEVEL_HASH,
        message=f"`{trick}` at {trick}:9 may persist before {trick}",
        location=place,
        other=place,
        crash_point=trick,
        note=trick,
        uncertain=trick,
        replay=trick,
        id=trick,
        model=trick,
        fix=Fix(trick, trick, (Edit(trick, 1, True, trick),), verified=trick, extra_flushes=1, no_edit=trick),
        verdict=replace(LEVEL_HASH.evidence.verdict, output=f"{trick}\n" * 3),
        schedule=tuple(replace(step, detail=trick, location=place) for step in LEVEL_HASH.evidence.schedule),
    )
    known = replace(bad, uncertain="", suppressed=trick)
    return replace(run(replace(bad, uncertain=""), known, uncertain=(bad,), warnings=(trick,)), strategy=trick)


def check_inert(trick: str) -> None:
    text = rendered(everywhere(trick))
    page = Page(text)
    assert page.open == []
    assert set(page.tags) <= MADE
    assert page.comments == []
    assert page.tags.count("tr") == 5
    assert page.tags.count("details") == 7
    assert not re.search(r"@\w|(?<!\w)#\d|GH-\d|://|www\.", page.plain)


@pytest.mark.parametrize("trick", TRICKS)
def test_each_trick_is_shown_and_does_nothing(trick: str) -> None:
    check_inert(trick)


@given(st.lists(st.sampled_from([*TRICKS, " ", "a", "\n", "\r", "`", "|", "<", ">", "&", "\\"]), max_size=6))
def test_tricks_together_do_nothing_either(parts: list[str]) -> None:
    check_inert("".join(parts) or "x")


@given(st.text(alphabet=st.sampled_from("`|\\ ab<&*_[]()!#@$~\n"), max_size=30))
def test_code_is_shown_to_the_letter(text: str) -> None:
    shown = text.replace("\n", "\u240a").strip()
    assert Page(f"x {markup.code(text)} y").code == ([shown] if shown else [])
    table = f"| a | b |\n| --- | --- |\n| x {markup.code_cell(text)} | y |\n"
    if "\\|" not in shown and not shown.endswith("\\"):  # there Markdown has no way to write it
        assert Page(table).code == ([shown] if shown else [])
    assert Page(table).tags.count("td") == 2


@given(st.lists(st.text(alphabet=st.sampled_from("`~ ab<\\"), max_size=12), max_size=5))
def test_a_block_is_shown_to_the_letter(rows: list[str]) -> None:
    page = Page(f"x\n\n{markup.block(rows)}\n\ny\n")
    assert page.code == ["".join(f"{row}\n" for row in rows)]
    assert page.plain.split() == ["x", "y"]


@given(st.text(alphabet=st.sampled_from("`|\\ ab<&*_[]()!#@$~"), max_size=30))
def test_plain_text_is_shown_to_the_letter(text: str) -> None:
    shown = Page(f"x {markup.inline(text)} y").plain.replace("\u200b", "")
    assert shown.split() == ["x", *text.split(), "y"]


@pytest.mark.parametrize("result", [many(100), many(1000), long_names(100)], ids=["hundred", "thousand", "long"])
@pytest.mark.parametrize("limit", [COMMENT, SUMMARY], ids=["comment", "summary"])
def test_what_does_not_fit_is_cut_between_findings_with_a_note(result: RunResult, limit: Limit) -> None:
    text = markdown.render(build_view(result), limit, more="the artifact crashcheck-report")
    assert len(text) <= limit.characters
    assert len(text.encode("utf-8")) <= limit.size_bytes
    page = Page(text)
    assert page.open == []
    shown = page.plain.count("Reproduce:")
    if shown < len(result.findings):
        left = len(result.findings) - shown
        assert f"The details of {left:,} findings are left out here" in page.plain
        assert "See the artifact crashcheck-report." in page.plain
        assert shown > 0
    assert "Crash states: " in page.plain


def test_even_a_tiny_limit_is_kept() -> None:
    limit = Limit(300, 300, "a note")
    text = rendered(many(3), limit)
    assert len(text) <= 300
    assert text.startswith("### crashcheck: 3 findings;")
    assert "The details of 3 findings are left out here" in text


def test_places_link_to_the_commit_that_was_tested() -> None:
    name = {"src/level_hash.c": "db/src/level (hash)>.c"}.get
    link = markdown.github_links("https://github.com/o/r", "0" * 40, lambda file: name(file, ""))
    text = markdown.render(build_view(ONE, SOURCES), link=link)
    url = f"https://github.com/o/r/blob/{'0' * 40}/db/src/level%20%28hash%29%3E.c#L9"
    assert f"[`src/level_hash.c:9`](<{url}>)" in text
    assert link("/usr/include/x.h", 3) == ""


def test_a_finding_begins_with_what_breaks_where_and_the_fix_and_its_schedule_is_folded() -> None:
    text = rendered(run(FIXED))
    order = ["**What breaks:** `check: slot 5 of bucket 17 is valid`", "- **A** survived", "**Suggested fix:**"]
    order += ["```diff\n@@ ", "Reproduce:", "<details><summary>How the crash happens", "```text\n   201  mark"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    (rows,) = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    assert any(row.startswith("+") for row in rows.split("\n"))
