"""What messages are called: by their first characters, or, where these are no text, by what distinguishes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

_TEXT_BYTES = 24  # of a message: if half of them are printable, it is text
_RUNS = 3  # of bytes that distinguish a message
_RUN_BYTES = 8


def shown(data: bytes, chars: int) -> str:
    """The first bytes of a message, as text where they are printable."""
    text = "".join(_characters(data[: chars + 1]))
    return text[:chars] + ("…" if len(data) > chars or len(text) > chars else "")


def _characters(data: bytes) -> Iterator[str]:
    for byte in data.rstrip(b"\r\n\0"):
        yield chr(byte) if _printable(byte) else f"\\x{byte:02x}"


def _printable(byte: int) -> bool:
    return 32 <= byte < 127 and byte != 96


def binary_names(messages: Iterable[bytes]) -> Mapping[bytes, str]:
    """What those of a run's messages are called that are no text: "01 at 4, 0203 at 8 (72 bytes)".

    The bytes are those in which messages of one length differ; of a message without others of its length, those that
    are not zero. The first few: what follows is often a counter, a time or a checksum.
    """
    by_length: dict[int, list[bytes]] = {}
    for data in dict.fromkeys(messages):
        if not _is_text(data):
            by_length.setdefault(len(data), []).append(data)
    return {data: _name(data, _distinguishing(data, same)) for same in by_length.values() for data in same}


def _is_text(data: bytes) -> bool:
    start = data[:_TEXT_BYTES].rstrip(b"\r\n\0")
    return 2 * sum(map(_printable, start)) >= len(start) and (bool(start) or b"\0" not in data)


def _distinguishing(data: bytes, same: Sequence[bytes]) -> Iterator[int]:
    """The places of the bytes that distinguish a message from others of its length."""
    if len(same) > 1:
        return (at for at, values in enumerate(zip(*same, strict=True)) if len(set(values)) > 1)
    return (at for at, byte in enumerate(data) if byte)


def _name(data: bytes, places: Iterator[int]) -> str:
    runs: list[list[int]] = []
    for at in islice(places, _RUNS * _RUN_BYTES):
        if runs and at == runs[-1][-1] + 1 and len(runs[-1]) < _RUN_BYTES:
            runs[-1].append(at)
        else:
            runs.append([at])
    texts = [f"{data[run[0] : run[-1] + 1].hex()} at {run[0]}" for run in runs[:_RUNS]]
    texts += ["…"] if len(runs) > _RUNS or next(places, None) is not None else []
    size = f"{len(data)} bytes" if len(data) > 1 else "1 byte"
    return f"{', '.join(texts)} ({size})" if texts else size
