"""What messages are called: by their first characters, or, where these are equal or no text, by what is their own.

Many protocols begin all messages with the same fields, as `{"from": "n1", "to": "n2", "body": …`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

TEXT_BYTES = 24  # of a message: if half of them are printable, it is text
_RUNS = 3  # of bytes that distinguish a message
_RUN_BYTES = 8
_FIELD_START = re.compile(rb"[{[(,;&? \t]")


class MessageName(NamedTuple):
    """`sentence`: "01 at 4, 0203 at 8 (72 bytes)"; `label`: for a picture, "01 0203". Of text they are equal."""

    sentence: str
    label: str


def shown(data: bytes, chars: int) -> str:
    """The first bytes of a message, as text where they are printable."""
    text = "".join(_characters(data[: chars + 1]))
    return text[:chars] + ("…" if len(data) > chars or len(text) > chars else "")


def _characters(data: bytes) -> Iterator[str]:
    for byte in data.rstrip(b"\r\n\0"):
        yield chr(byte) if _printable(byte) else f"\\x{byte:02x}"


def _printable(byte: int) -> bool:
    return 32 <= byte < 127 and byte != 96


def message_names(messages: Iterable[bytes]) -> Mapping[bytes, MessageName]:
    """What a run's messages are called.

    Those that are no text by the bytes in which messages of one length differ, one without others of its length by
    those that are not zero. The first few: what follows is often a counter, a time or a checksum.
    """
    similar: dict[tuple[bool, bytes | int], list[bytes]] = {}
    for data in dict.fromkeys(messages):
        text = is_text(data)
        similar.setdefault((text, data[:TEXT_BYTES] if text else len(data)), []).append(data)
    return {
        data: _text_name(data, same) if text else _binary_name(data, _distinguishing(data, same))
        for (text, _), same in similar.items()
        for data in same
    }


def _text_name(data: bytes, same: Sequence[bytes]) -> MessageName:
    """The first characters, or, where they are those of others, what follows from the field in which they differ.

    Only within the first line: that of HTTP describes a message better than where the rest differs.
    """
    lines = {each.partition(b"\n")[0] for each in same}
    differ = next(_differing(lines), 0)
    field = max((found.end() for found in _FIELD_START.finditer(data, 0, differ)), default=0)
    name = f"…{shown(data[field:], TEXT_BYTES - 1)}" if field else shown(data, TEXT_BYTES)
    return MessageName(name, name)


def is_text(data: bytes) -> bool:
    """Whether most of the first characters are printable."""
    start = data[:TEXT_BYTES].rstrip(b"\r\n\0")
    return 2 * sum(map(_printable, start)) >= len(start) and (bool(start) or b"\0" not in data)


def _distinguishing(data: bytes, same: Sequence[bytes]) -> Iterator[int]:
    """The places of the bytes that distinguish a message from others of its length."""
    if len(same) > 1:
        return _differing(same)
    return (at for at, byte in enumerate(data) if byte)


def _differing(same: Iterable[bytes]) -> Iterator[int]:
    return (at for at, values in enumerate(zip(*same, strict=False)) if len(set(values)) > 1)


def _binary_name(data: bytes, places: Iterator[int]) -> MessageName:
    runs: list[list[int]] = []
    for at in islice(places, _RUNS * _RUN_BYTES):
        if runs and at == runs[-1][-1] + 1 and len(runs[-1]) < _RUN_BYTES:
            runs[-1].append(at)
        else:
            runs.append([at])
    parts = [data[run[0] : run[-1] + 1].hex() for run in runs[:_RUNS]]
    texts = [f"{part} at {run[0]}" for part, run in zip(parts, runs, strict=False)]
    texts += ["…"] if len(runs) > _RUNS or next(places, None) is not None else []
    size = f"{len(data)} bytes" if len(data) > 1 else "1 byte"
    return MessageName(f"{', '.join(texts)} ({size})" if texts else size, " ".join(parts) or size)
