"""The replay token: what shows a finding again, as a short string that belongs to one recording.

Its tag names what it is of: `crash:` a crash state under a model, `recovery:` the same and a crash of the check that
recovers from it, `reopen:` a clean reopen after an operation, `order:` an order of actions of nodes. Tokens of earlier
versions begin with `cc1-`.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import zlib
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.persistence.shown_names import shown_paths
from crashcheck.analyzer.trace.accesses import payloads_of
from crashcheck.analyzer.trace.calls import allocations, name_events
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.states.space import CrashState
from crashcheck.errors import CrashcheckError
from crashcheck.models import FAMILIES
from crashcheck.runtime.nodes.actions import Action, ActionKind
from crashcheck.runtime.trace_format import INLINE_BYTES, Kind, OutputKind, Recorder

FORMER = "cc1-"  # both `crash:` and `recovery:`
_TAGS = ("crash", "recovery")  # by the number of levels
_REOPEN = "reopen"
_ORDER = "order"
_KINDS_OF_ACTIONS = tuple(ActionKind)  # in the order in which they came, as _MODELS
_MOST_ACTIONS = 1_000_000
DIGEST_BYTES = 8
_MODELS = tuple(FAMILIES)  # in the order in which they came: a token holds the place
_FILES = ("ext4", "posix")
_TEARS = (0, 512, 4096)
_MOST_LEVELS = 2
_MOST_NUMBER = (1 << 63) - 1
_AT_ONCE = 1 << 22  # bytes of updates that are gathered together
MOST_PIECES = 1 << 22  # that a state lists: those of its smaller side
# What decides which states there are; sites and stacks do not.
_KINDS = np.array([kind for kind in Kind if kind <= Kind.OUTPUT], dtype=np.uint8)


def digest(trace: Trace) -> bytes:
    """8 bytes that two recordings share iff the same updates, order and marks happened to the same files."""
    events = trace.events
    rows = events[np.isin(events["kind"], _KINDS)]
    small = np.where(rows["size"] <= INLINE_BYTES, rows["payload"], 0)
    # What is printed is no difference, only how much of it was by then, which is the offset.
    printed = (rows["kind"] == Kind.OUTPUT) & (rows["aux"] == OutputKind.STDOUT)
    sizes = np.where(printed, 0, rows["size"]).astype(rows["size"].dtype)
    payload = np.where(among(rows["kind"], (Kind.STORE, Kind.WRITE)), small, 0)
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    shown = shown_paths(trace)  # what is random in names is no difference
    # 16 bits where they are enough, as in earlier versions of the format: tokens stay valid
    numbers = rows["file"].astype(np.uint16) if int(rows["file"].max(initial=0)) < 1 << 16 else rows["file"]
    for column in (rows["kind"], rows["flags"], numbers, rows["offset"], sizes, rows["aux"], payload):
        state.update(np.ascontiguousarray(column).tobytes())
    carries = among(events["kind"], (Kind.STORE, Kind.WRITE))
    large = np.flatnonzero(carries & (events["size"] > INLINE_BYTES))
    batch = np.cumsum(events["size"][large].astype(np.int64)) // _AT_ONCE
    for some in np.split(large, np.flatnonzero(np.diff(batch)) + 1):
        state.update(payloads_of(trace.raw, events[some]).data)
    if trace.recorder is Recorder.SYSCALLS:
        for call in name_events(trace):
            fields = (getattr(call, field.name) for field in dataclasses.fields(call) if field.name != "event")
            seen = [type(call).__name__, *(shown(value) if isinstance(value, str) else value for value in fields)]
            state.update(repr(seen).encode())
        for one in allocations(trace):
            state.update(repr((one.inode, one.offset, one.size, one.mode)).encode())
    for number in sorted(trace.files):
        file = trace.files[number]
        path = shown(file.path)
        state.update(f"{number}\0{path}\0{file.existed}\0{file.first_size}\n".encode("utf-8", "surrogateescape"))
    return state.digest()


@dataclass(frozen=True, slots=True)
class Level:
    """A state of one trace; the first level is the workload's, the next its check's own run."""

    digest: bytes
    state: CrashState


@dataclass(frozen=True, slots=True)
class Token:
    """A state under a model; `levels` has two entries where the check was crashed as well."""

    model: str
    options: Options
    levels: tuple[Level, ...]

    def __str__(self) -> str:
        files = _FILES.index(self.options.files) + len(_FILES) * self.options.amplify
        body = bytearray([_MODELS.index(self.model), files])
        _put(body, self.options.tear)
        _put(body, len(self.levels))
        for level in self.levels:
            body += level.digest
            _put(body, level.state.point)
            runs = _runs(level.state.pieces)
            _put(body, len(runs) * 2 + level.state.dropped)
            last = 0
            for low, length in runs:
                _put(body, low - last)
                _put(body, length)
                last = low + length
        return _tagged(_TAGS[len(self.levels) - 1], body)

    @staticmethod
    def parse(text: str) -> Token:
        """Raises CrashcheckError token-malformed where this is no token of a crash state, or not all of one."""
        token = parse(text)
        if isinstance(token, ReopenToken):
            raise _malformed(text.strip(), "it reopens without a crash", "crash state")
        if isinstance(token, OrderToken):
            raise _malformed(text.strip(), "it is of a run of nodes", "crash state")
        return token

    def for_trace(self, trace: Trace) -> CrashState:
        """The first level's state; CrashcheckError token-other-trace where it belongs to another recording."""
        must_be_of(trace, self.levels[0].digest)
        return self.levels[0].state


@dataclass(frozen=True, slots=True)
class ReopenToken:
    """A clean close and reopen of the driver after one of the operations of a recording."""

    digest: bytes
    ordinal: int

    def __str__(self) -> str:
        body = bytearray(self.digest)
        _put(body, self.ordinal)
        return _tagged(_REOPEN, body)


@dataclass(frozen=True, slots=True)
class OrderToken:
    """The actions of a run of nodes, up to what is wrong. `digest`: of their commands and programs."""

    digest: bytes
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        body = bytearray()
        for action in self.actions:
            body.append(_KINDS_OF_ACTIONS.index(action.kind))
            for number in (action.node, action.peer + 1, action.number, action.channel, action.due_ns):
                _put(body, number)
        return _tagged(_ORDER, self.digest + zlib.compress(bytes(body), 9))


def _order(body: bytes) -> OrderToken:
    unpacked = zlib.decompressobj()
    read = _Reader(unpacked.decompress(body[DIGEST_BYTES:], 60 * _MOST_ACTIONS))
    if unpacked.unconsumed_tail:
        raise ValueError
    actions = []
    while not read.done():
        kind = _KINDS_OF_ACTIONS[read.take(1)[0]]
        node, peer, number, channel, due_ns = (read.number() for _ in range(5))
        actions.append(Action(kind, node, peer - 1, number, channel, due_ns))
    return OrderToken(body[:DIGEST_BYTES], tuple(actions))


def parse(text: str) -> Token | ReopenToken | OrderToken:
    """The token of any kind. Raises CrashcheckError token-malformed where this is none, or not all of one."""
    text = text.strip()
    former = text.startswith(FORMER)
    tag, colon, letters = ("", "", text[len(FORMER) :]) if former else text.partition(":")
    if not former and (not colon or tag not in (*_TAGS, _REOPEN, _ORDER)):
        tags = ", ".join(f"{each}:" for each in (*_TAGS, _REOPEN))
        raise _malformed(text, f"it does not begin with {tags} or {_ORDER}:")
    try:
        body = base64.b32decode(letters.upper() + "=" * (-len(letters) % 8))
    except ValueError:  # of which binascii.Error is one; a character that is not ASCII raises another
        raise _malformed(text, "it holds a character that no token has, or lacks some") from None
    if len(body) < 5 or _checksum(tag, body[:-4]) != body[-4:]:
        raise _malformed(text, "its checksum does not fit: a character is wrong or missing")
    try:
        if tag == _ORDER:
            return _order(body[:-4])
        read = _Reader(body[:-4])
        return _reopen(read) if tag == _REOPEN else _crash(read)
    except (IndexError, ValueError, zlib.error):
        raise _malformed(text, "it was made by another version of crashcheck") from None


def must_be_of(trace: Trace, known: bytes) -> None:
    """Raises CrashcheckError token-other-trace where a trace has another digest than the token's."""
    own = digest(trace)
    if known != own:
        raise CrashcheckError(
            "token-other-trace",
            f"the token belongs to trace {known.hex()}, but {trace.path} is trace {own.hex()}",
            "The program or its workload has changed since: run `crashcheck run` again and use its token.",
        )


def _tagged(tag: str, body: bytes | bytearray) -> str:
    return f"{tag}:{base64.b32encode(body + _checksum(tag, body)).decode().rstrip('=').lower()}"


def _checksum(tag: str, body: bytes | bytearray) -> bytes:
    """Of the tag, too: another tag makes no other token of it."""
    return zlib.crc32(body, zlib.crc32(tag.encode())).to_bytes(4, "big")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise IndexError
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if value > _MOST_NUMBER:
                raise ValueError
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError

    def done(self) -> bool:
        return self._at == len(self._data)


def _reopen(read: _Reader) -> ReopenToken:
    token = ReopenToken(read.take(DIGEST_BYTES), read.number())
    if not read.done():
        raise ValueError
    return token


def _crash(read: _Reader) -> Token:
    model = _MODELS[read.take(1)[0]]
    amplify, files = divmod(read.take(1)[0], len(_FILES))
    options = Options(read.number(), _FILES[files], bool(amplify))
    if amplify > 1:
        raise ValueError
    count = read.number()
    if options.tear not in _TEARS or count > _MOST_LEVELS:
        raise ValueError
    levels = []
    for _ in range(count):
        which = read.take(DIGEST_BYTES)
        point = read.number()
        runs, dropped = divmod(read.number(), 2)
        pieces: list[int] = []
        last = 0
        for _ in range(runs):
            low = last + read.number()
            last = low + read.number()
            if last > _MOST_NUMBER or len(pieces) + last - low > MOST_PIECES:
                raise ValueError
            pieces.extend(range(low, last))
        levels.append(Level(which, CrashState(point, bool(dropped), tuple(pieces))))
    if not read.done() or not levels:
        raise ValueError
    return Token(model, options, tuple(levels))


def _put(body: bytearray, value: int) -> None:
    value = int(value)
    while value >= 128:
        body.append(value & 127 | 128)
        value >>= 7
    body.append(value)


def _runs(pieces: tuple[int, ...]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for piece in pieces:
        if runs and runs[-1][0] + runs[-1][1] == piece:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((int(piece), 1))
    return runs


def _malformed(text: str, why: str, of: str = "") -> CrashcheckError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    what = f"is not a replay token{f' of a {of}' if of else ''}: {why}"
    return CrashcheckError("token-malformed", f"{shown!r} {what}", "Copy the whole token.")
