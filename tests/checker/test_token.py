"""A token names one state of one trace, and nothing else is taken for it."""

from __future__ import annotations

import base64
import contextlib
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.persistence.graph import Options
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.token import DIGEST_BYTES, Level, OrderToken, ReopenToken, Token, digest, parse
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.nodes.actions import Action, ActionKind
from support.tracing import TraceBuilder

states = st.builds(
    CrashState,
    st.integers(0, 1 << 40),
    st.booleans(),
    st.sets(st.integers(0, 1 << 20), max_size=40).map(lambda pieces: tuple(sorted(pieces))),
)
tokens = st.builds(
    Token,
    st.sampled_from(["px86", "eadr", "page-cache"]),
    st.builds(Options, st.sampled_from([0, 512, 4096]), st.sampled_from(["ext4", "posix"]), st.booleans()),
    st.lists(
        st.builds(Level, st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES), states), min_size=1, max_size=2
    ).map(tuple),
)


@given(tokens)
def test_a_token_holds_what_was_put_into_it(token: Token) -> None:
    assert Token.parse(str(token)) == token
    assert Token.parse(f"  {token}\n") == token
    assert str(token).isascii()
    tag, letters = str(token).split(":")
    assert (tag, letters.isalnum()) == ("crash" if len(token.levels) == 1 else "recovery", True)


@given(st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES), st.integers(0, 1 << 40))
def test_a_reopen_token_holds_its_operation_and_is_no_crash_state(of: bytes, ordinal: int) -> None:
    token = ReopenToken(of, ordinal)
    assert parse(str(token)) == token
    with pytest.raises(CrashcheckError, match="is not a replay token of a crash state"):
        Token.parse(str(token))


actions = st.builds(
    Action,
    st.sampled_from(ActionKind),
    st.integers(0, 1 << 20),
    st.integers(-1, 1 << 20),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 20),
    st.integers(0, (1 << 63) - 1),
)


@given(st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES), st.lists(actions, max_size=50))
def test_an_order_token_holds_its_actions_and_is_no_crash_state(of: bytes, order: list[Action]) -> None:
    token = OrderToken(of, tuple(order))
    assert parse(str(token)) == token
    with pytest.raises(CrashcheckError, match="is not a replay token of a crash state: it is of a run of nodes"):
        Token.parse(str(token))


def test_tokens_of_earlier_versions_name_the_same_states() -> None:
    """They were written by the last crashcheck that had one kind of token."""
    states = (CrashState(7, True, (1, 2, 9)), CrashState(1, False, ()))
    levels = tuple(Level(bytes(8), state) for state in states)
    both = "cc1-aaaaaaqaaaaaaaaaaaaaobibaidacaaaaaaaaaaaaaaqafetbala"
    assert parse(both) == Token("px86", Options(), levels)


@given(tokens, st.sampled_from(["crash", "recovery", "reopen", "order", "cc1"]))
def test_a_token_with_the_tag_of_another_kind_is_refused(token: Token, tag: str) -> None:
    own, letters = str(token).split(":")
    if tag != own:
        with pytest.raises(CrashcheckError, match="is not a replay token"):
            parse(f"{tag}:{letters}")


@given(tokens, st.data())
def test_one_wrong_character_is_noticed(token: Token, data: st.DataObject) -> None:
    text = str(token)
    at = data.draw(st.integers(text.index(":") + 1, len(text) - 1))
    other = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz234567").filter(lambda c: c != text[at]))
    changed = text[:at] + other + text[at + 1 :]
    if at < len(text) - 1:  # the last character has spare bits, which mean nothing
        with pytest.raises(CrashcheckError, match="is not a replay token"):
            Token.parse(changed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cc1-",
        "crash:aaaa",
        "cc2-aaaaaaaaaaaa",
        "order:aaaaaaaaaaaa",
        "crash",
        "reopen:a!b",
        "état",
        "cc1-" + "a" * 5000,
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        Token.parse(text)
    assert caught.value.slug == "token-malformed"


@given(tokens, st.integers(1, 30))
def test_a_cut_token_is_refused(token: Token, cut: int) -> None:
    with pytest.raises(CrashcheckError, match="is not a replay token"):
        Token.parse(str(token)[: -min(cut, len(str(token)) - 9)])


def recorded(path: Path, value: int, stack: int = 0) -> TraceBuilder:
    t = TraceBuilder(path)
    t.file("p", size=4096)
    if stack:
        t.gap(5)
    t.stack = stack
    t.store("p", 0, 8, value)
    t.sfence()
    return t


def test_a_token_for_another_trace_is_refused_by_name(tmp_path: Path) -> None:
    one, two = recorded(tmp_path / "1", 1).trace(), recorded(tmp_path / "2", 2).trace()
    state = CrashState(0, True, (0,))
    token = Token("px86", Options(), (Level(digest(one), state),))
    assert token.for_trace(one) == state
    with pytest.raises(CrashcheckError, match=digest(two).hex()) as caught:
        token.for_trace(two)
    assert caught.value.slug == "token-other-trace"


def test_a_recording_that_did_the_same_has_the_same_digest(tmp_path: Path) -> None:
    one, two = recorded(tmp_path / "1", 1).trace(), recorded(tmp_path / "2", 1, stack=7).trace()
    assert digest(one) == digest(two)


def _token(body: bytes) -> str:
    whole = body + zlib.crc32(body).to_bytes(4, "big")
    return "cc1-" + base64.b32encode(whole).decode().rstrip("=").lower()


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("cc1-äöü", id="not ASCII"),
        pytest.param("cc1-\udcff", id="a byte that is not UTF-8"),
        pytest.param(_token(bytes([0, 0, 0, 1]) + bytes(9) + b"\2\0" + _number(1 << 36)), id="a run of 2^36"),
        pytest.param(_token(bytes([0, 0, 7, 1]) + bytes(10)), id="a tear of 7 bytes"),
        pytest.param(_token(bytes([0, 0, 0, 3]) + 3 * bytes(10)), id="three levels"),
        pytest.param(_token(bytes([0, 0, 0, 1]) + bytes(8) + _number(1 << 200) + b"\0"), id="a point of 2^200"),
    ],
)
def test_a_valid_checksum_does_not_make_a_token(text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        Token.parse(text)
    assert caught.value.slug == "token-malformed"


@given(st.binary(max_size=60))
def test_any_bytes_with_a_checksum_are_a_token_or_refused(body: bytes) -> None:
    with contextlib.suppress(CrashcheckError):
        token = Token.parse(_token(body))
        assert Token.parse(str(token)) == token
