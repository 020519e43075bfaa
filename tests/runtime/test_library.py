"""C library functions that fill persistent memory."""

from __future__ import annotations

from collections.abc import Callable

from support.decode import BULK, LIBRARY


def test_string_functions_store_what_they_wrote(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("library", "strings")
    stores = [(event.offset, event.data) for event in trace.of("STORE")]
    assert stores == [
        (0, b"abc\0"), (3, b"de\0"), (10, b"x\0\0\0"), (5, b"fg\0"), (7, b"hi\0"), (100, b"12345\0"),
        (200, b"printed!\0"),
    ]  # fmt: skip
    assert {event.flags for event in trace.of("STORE")} == {BULK | LIBRARY}
    assert {event.site for event in trace.of("STORE")} == {0}


def test_a_wrapped_call_has_the_site_that_announced_it(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("library", "sited")
    stores = [(event.site, event.offset, event.data) for event in trace.of("STORE")]
    assert stores == [(6, 0, b"12345678"), (7, 64, b"zzz"), (9, 128, b"n-42\0"), (0, 256, b"x")]
