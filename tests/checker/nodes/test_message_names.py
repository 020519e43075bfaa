"""Names of messages."""

from __future__ import annotations

from struct import pack

from crashcheck.checker.nodes.message_names import message_names


def test_messages_of_one_length_are_named_by_the_bytes_in_which_they_differ() -> None:
    ask, answer, other = (pack("<3i40x", *each) for each in ((7, 1, 2), (7, 2, 2), (9, 2, 2)))
    assert message_names([ask, answer, other, ask]) == {
        ask: ("07 at 0, 01 at 4 (52 bytes)", "07 01"),
        answer: ("07 at 0, 02 at 4 (52 bytes)", "07 02"),
        other: ("09 at 0, 02 at 4 (52 bytes)", "09 02"),
    }


def test_a_message_without_others_of_its_length_is_named_by_the_bytes_that_are_not_zero() -> None:
    alone = bytes(5) + b"\1\2\3" + bytes(9)
    assert message_names([alone, bytes(3), b"\1"]) == {
        alone: ("010203 at 5 (17 bytes)", "010203"),
        bytes(3): ("3 bytes", "3 bytes"),
        b"\1": ("01 at 0 (1 byte)", "01"),
    }


def test_a_name_is_short_however_many_bytes_differ() -> None:
    names = message_names([bytes(range(128, 256)), bytes(range(129, 256)) + b"\0", bytes(4) + b"\1\0" * 40])
    assert [name.sentence for name in names.values()] == [
        "8081828384858687 at 0, 88898a8b8c8d8e8f at 8, 9091929394959697 at 16, … (128 bytes)",
        "8182838485868788 at 0, 898a8b8c8d8e8f90 at 8, 9192939495969798 at 16, … (128 bytes)",
        "01 at 4, 01 at 6, 01 at 8, … (84 bytes)",
    ]


def test_text_keeps_its_characters_also_after_a_length_or_with_line_ends() -> None:
    texts = [b"vote 1\r\n", b"\0\0\0\6vote 1", b"*1\r\n$4\r\nPING\r\n", b"\r\n", b""]
    names = ["vote 1", "\\x00\\x00\\x00\\x06vote 1", "*1\\x0d\\x0a$4\\x0d\\x0aPING", "", ""]
    assert message_names(texts) == {text: (name, name) for text, name in zip(texts, names, strict=True)}


def test_texts_that_begin_alike_are_named_from_the_field_in_which_they_differ() -> None:
    start = b'{"src": "n0", "dest": "n1", "body": {"type": '
    texts = [start + b'"vote", "term": 1}}', start + b'"append", "term": 1}}', b'{"src": "n0"}']
    assert [name.label for name in message_names(texts).values()] == [
        '…"vote", "term": 1}}',
        '…"append", "term": 1}}',
        '{"src": "n0"}',
    ]


def test_requests_of_http_are_named_by_their_first_lines() -> None:
    posts = [b"POST /cluster/append?entry=%d HTTP/1.1\r\nHost: n%d\r\n\r\n" % each for each in ((1, 1), (1, 2), (2, 2))]
    assert {name.label for name in message_names(posts[:2]).values()} == {"POST /cluster/append?ent…"}
    assert [name.label for name in message_names(posts).values()] == [
        "…entry=1 HTTP/1.1\\x0d\\x0…",
        "…entry=1 HTTP/1.1\\x0d\\x0…",
        "…entry=2 HTTP/1.1\\x0d\\x0…",
    ]


def test_a_text_that_another_one_continues_keeps_its_first_characters() -> None:
    texts = [b"append the entry 1 of term 2", b"append the entry 1 of term 25"]
    assert [name.label for name in message_names(texts).values()] == ["append the entry 1 of te…"] * 2
