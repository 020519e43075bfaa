"""Names of messages that are no text."""

from __future__ import annotations

from struct import pack

from crashcheck.checker.nodes.message_names import binary_names, shown


def test_messages_of_one_length_are_named_by_the_bytes_in_which_they_differ() -> None:
    ask, answer, other = (pack("<3i40x", *each) for each in ((7, 1, 2), (7, 2, 2), (9, 2, 2)))
    assert binary_names([ask, answer, other, ask]) == {
        ask: "07 at 0, 01 at 4 (52 bytes)",
        answer: "07 at 0, 02 at 4 (52 bytes)",
        other: "09 at 0, 02 at 4 (52 bytes)",
    }


def test_a_message_without_others_of_its_length_is_named_by_the_bytes_that_are_not_zero() -> None:
    alone = bytes(5) + b"\1\2\3" + bytes(9)
    assert binary_names([alone, bytes(3), b"\1"]) == {
        alone: "010203 at 5 (17 bytes)",
        bytes(3): "3 bytes",
        b"\1": "01 at 0 (1 byte)",
    }


def test_a_name_is_short_however_many_bytes_differ() -> None:
    names = binary_names([bytes(range(128, 256)), bytes(range(129, 256)) + b"\0", bytes(4) + b"\1\0" * 40])
    assert list(names.values()) == [
        "8081828384858687 at 0, 88898a8b8c8d8e8f at 8, 9091929394959697 at 16, … (128 bytes)",
        "8182838485868788 at 0, 898a8b8c8d8e8f90 at 8, 9192939495969798 at 16, … (128 bytes)",
        "01 at 4, 01 at 6, 01 at 8, … (84 bytes)",
    ]


def test_text_keeps_its_characters_also_after_a_length_or_with_line_ends() -> None:
    texts = [b"vote 1\r\n", b"\0\0\0\6vote 1", b"*1\r\n$4\r\nPING\r\n", b"\r\n", b""]
    assert binary_names(texts) == {}
    assert [shown(text, 24) for text in texts[:2]] == ["vote 1", "\\x00\\x00\\x00\\x06vote 1"]
    assert shown(texts[2], 24) == "*1\\x0d\\x0a$4\\x0d\\x0aPING"
