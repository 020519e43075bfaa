"""A thread that answers from data which another thread has not made durable yet is named in the finding."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.checked_worlds import MakeWorld, only, persist, place
from support.tracing import TraceBuilder

Script = Callable[[TraceBuilder], None]
STORED, READ, ANSWERED, ELSEWHERE = 1, 2, 3, 4
SITES = {
    STORED: place(10, "entry.value"),
    READ: place(20, "entry.value"),
    ANSWERED: place(30, ""),
    ELSEWHERE: place(40, "other"),
}
ANSWER = (
    "answered from data that a crash can lose: "
    "the thread that answered at hash.c:30 had read `entry.value` at hash.c:20"
)
OTHERS = "; another thread stores it, and had not made it durable"
NAMED = ANSWER + OTHERS
PERHAPS = f"perhaps {ANSWER}, perhaps again after it was stored: repeated reads are not recorded{OTHERS}"


def at(t: TraceBuilder, site: int) -> TraceBuilder:
    t.site = site
    return t


def store(t: TraceBuilder) -> None:
    at(t, STORED).store("p", 0, 8, 7)


def read(t: TraceBuilder, offset: int = 0, site: int = READ) -> None:
    at(t, site).load("p", offset)


def answer(t: TraceBuilder) -> None:
    at(t, ANSWERED).end(1)


def read_in_time(t: TraceBuilder) -> None:
    store(t)
    with t.thread(2):
        read(t)
        answer(t)


def read_and_then_other_words(t: TraceBuilder) -> None:
    store(t)
    with t.thread(2):
        read(t)
        for offset in (64, 128):
            read(t, offset)
        answer(t)


def waited_for(t: TraceBuilder) -> None:
    """The reads of a loop are one record, which may be before the store."""
    with t.thread(2):
        read(t)
    store(t)
    with t.thread(2):
        answer(t)


def waited_for_and_then_other_words(t: TraceBuilder) -> None:
    with t.thread(2):
        read(t)
    store(t)
    with t.thread(2):
        read(t, 64)
        answer(t)


def read_before_other_words(t: TraceBuilder) -> None:
    """After these the site would have been recorded again."""
    with t.thread(2):
        read(t)
        read(t, 64)
    store(t)
    with t.thread(2):
        answer(t)


def read_by_neither(t: TraceBuilder) -> None:
    store(t)
    with t.thread(2):
        read(t, 8, ELSEWHERE)
        answer(t)


def read_by_a_third(t: TraceBuilder) -> None:
    store(t)
    with t.thread(3):
        read(t)
    with t.thread(2):
        answer(t)


def read_too_late(t: TraceBuilder) -> None:
    store(t)
    with t.thread(2):
        answer(t)
        read(t)


def answered_by_itself(t: TraceBuilder) -> None:
    store(t)
    read(t)
    answer(t)


def overwritten_meanwhile(t: TraceBuilder) -> None:
    store(t)
    at(t, ELSEWHERE).store("p", 0, 8, 8)
    with t.thread(2):
        read(t)
        answer(t)


@pytest.mark.parametrize("model", ["px86", "page-cache"])
@pytest.mark.parametrize(
    ("meanwhile", "note"),
    [
        (read_in_time, NAMED),
        (read_and_then_other_words, NAMED),
        (waited_for, PERHAPS),
        (waited_for_and_then_other_words, PERHAPS),
        (read_before_other_words, ""),
        (read_by_neither, ""),
        (read_by_a_third, ""),
        (read_too_late, ""),
        (answered_by_itself, ""),
    ],
)
def test_the_thread_that_had_read_what_was_lost_and_answered_is_named(
    world: MakeWorld, meanwhile: Script, note: str, model: str
) -> None:
    def script(t: TraceBuilder) -> None:
        t.begin(1)
        meanwhile(t)
        t.site = 0
        persist(t, 0) if model == "px86" else t.msync("p")

    (finding,) = world(script, "1:0", sites=SITES, model=model).explore().findings
    assert finding.kind == "unpersisted"
    assert [part for part in (finding.note,) if "answered" in part] == ([note] if note else [])


def test_of_a_word_that_was_stored_again_the_store_that_was_read_is_named(world: MakeWorld) -> None:
    def script(t: TraceBuilder) -> None:
        t.begin(1)
        overwritten_meanwhile(t)

    (finding,) = world(script, "1:0", sites=SITES).explore().findings
    assert finding.message == "`entry.value` can be lost after operation 1 was acknowledged (hash.c:10)"
    assert finding.note == NAMED.replace("read `entry.value`", "read `other`")


@pytest.mark.parametrize("model", ["px86", "page-cache"])
def test_an_answer_after_the_data_are_durable_is_no_finding(world: MakeWorld, model: str) -> None:
    def script(t: TraceBuilder) -> None:
        t.begin(1)
        store(t)
        persist(t, 0) if model == "px86" else t.msync("p")
        with t.thread(2):
            read(t)
            answer(t)

    assert world(script, "1:0", sites=SITES, model=model).explore().findings == ()


def test_without_recorded_reads_nothing_is_named(world: MakeWorld) -> None:
    def script(t: TraceBuilder) -> None:
        t.begin(1)
        store(t)
        with t.thread(2):
            answer(t)

    assert "answered" not in only(world(script, "1:0", sites=SITES).explore().findings).note
