"""Litmus tests of the models of file systems: a program, what was seen on real ext4, and what never survives.

Seen: kernels 6.1, 6.12 and 6.18, mkfs defaults, blocks of 4096 bytes, each image cut from a log of the disk's writes.
`default` is ext4's default mount, `strict` one with dioread_lock. A state is a text: of each path what its content is,
as the litmus names it in `contents`; a path that is not named is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crashcheck.runtime.trace_format import OutputKind, SyncKind
from support.tracing import CallsBuilder

B = 4096
O1, O2, O4, N2 = b"o" * B, b"o" * 2 * B, b"o" * 4 * B, b"n" * 2 * B
JOURNALED = ("ext4", "ext4-strict", "ext4-writeback", "xfs")
ALL = ("ext4", "ext4-strict", "posix", "ext4-writeback", "xfs", "btrfs")

Never = Callable[[str], bool]  # whether a state is one that never survives


@dataclass(frozen=True)
class Litmus:
    """One program. `never`: for which models which states are impossible."""

    name: str
    rule: str
    program: Callable[[CallsBuilder], object]
    first: dict[str, bytes | None]
    contents: dict[str, bytes]
    default: tuple[str, ...]
    strict: tuple[str, ...]
    never: dict[tuple[str, ...], Never] = field(default_factory=dict)
    since: int = 0  # states after so many acknowledgements
    # Of a model, states that the kernel leaves and the model lacks: known gaps, named in docs/file-systems.md.
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def text(self, folder: dict[str, bytes | None]) -> str:
        names = {content: name for name, content in self.contents.items()} | {b"": "E"}
        shown = {p: "/" if data is None else names.get(data, f"{len(data)} other bytes") for p, data in folder.items()}
        return " ".join(f"{path}={shown[path]}" for path in sorted(shown))


LITMUS: list[Litmus] = []


def litmus(
    rule: str,
    first: dict[str, bytes | None],
    contents: dict[str, bytes],
    default: tuple[str, ...],
    strict: tuple[str, ...] | None = None,
    never: dict[tuple[str, ...], Never] | None = None,
    since: int = 0,
    missing: dict[str, tuple[str, ...]] | None = None,
) -> Callable[[Callable[[CallsBuilder], object]], Callable[[CallsBuilder], object]]:
    """`strict` is as `default` where it is not given."""

    def add(program: Callable[[CallsBuilder], object]) -> Callable[[CallsBuilder], object]:
        name = program.__name__.replace("_", "-")
        strictly = default if strict is None else strict
        states = (default, strictly, never or {}, since, missing or {})
        LITMUS.append(Litmus(name, rule, program, first, contents, *states))
        return program

    return add


def done(t: CallsBuilder) -> None:
    t.acknowledge(OutputKind.PIPE, b"done")


ONO = {"o": O1, "n": N2, "0": bytes(2 * B)}


@litmus(
    "5",
    {"f": O1},
    ONO,
    ("f=o", "f=n", "f=0", "f=o tmp=E", "f=o tmp=n", "f=o tmp=0"),
    ("f=o", "f=n", "f=o tmp=E", "f=o tmp=n"),
    never={JOURNALED: lambda s: s.startswith("f=E"), ("ext4-strict", "xfs"): lambda s: "f=0" in s},
)
def unsynced_rename_over_a_file(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, N2)
    t.move("tmp", "f")


@litmus("5", {}, ONO, ("", "tmp=E", "tmp=n", "g=E", "g=0", "g=n"), ("", "tmp=E", "tmp=n", "g=E", "g=n"))
def unsynced_rename_to_a_new_name(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, N2)
    t.move("tmp", "g")


@litmus(
    "3",
    {},
    {"n": b"n" * 5000, "N": b"n" * B, "N0": b"n" * B + bytes(904), "0n": bytes(B) + b"n" * 904},
    ("", "g=E", "g=n", "g=N", "g=N0", "g=0n"),
    ("", "g=E", "g=n", "g=N", "g=0n"),
)
def new_file_of_two_blocks(t: CallsBuilder) -> None:
    t.open("g")
    t.write("g", 0, b"n" * 5000)


@litmus("2", {"f": O1}, {"o": O1, "o0": O1 + bytes(2 * B), "on": O1 + N2}, ("f=o", "f=o0", "f=on"), ("f=o", "f=on"))
def append_of_blocks(t: CallsBuilder) -> None:
    t.append("f", B, N2)


@litmus(
    "2",
    {"f": b"o" * 100},
    {"o": b"o" * 100, "on": b"o" * 100 + b"n" * 100, "o0": b"o" * 100 + bytes(100)},
    ("f=o", "f=on", "f=o0"),
)
def append_inside_the_last_block_may_read_as_zeros(t: CallsBuilder) -> None:
    t.append("f", 100, b"n" * 100)


@litmus("2", {"f": O2}, {"oo": O2, "nn": N2, "on": O1 + N2[:B], "no": N2[:B] + O1}, ("f=oo", "f=nn", "f=on", "f=no"))
def overwrites_of_two_blocks_are_ordered_with_nothing(t: CallsBuilder) -> None:
    t.write("f", 0, N2[:B])
    t.write("f", B, N2[:B])


@litmus(
    "3",
    {"f": O1},
    {"o": O1, "1": b"1" * B, "2": b"2" * B},
    ("f=o", "f=1", "f=2"),
    never={ALL: lambda s: "other" in s},
)
def one_block_twice_is_a_prefix(t: CallsBuilder) -> None:
    t.write("f", 0, b"1" * B)
    t.write("f", 0, b"2" * B)


@litmus("5", {"f": O1}, ONO, ("f=o", "f=E", "f=0", "f=n"), ("f=o", "f=E", "f=n"))
def truncated_and_written_again(t: CallsBuilder) -> None:
    t.truncate("f", 0)
    t.write("f", 0, N2)


@litmus("4", {}, ONO, ("g=n",), never={JOURNALED: lambda s: s != "g=n"}, since=1)
def fsync_of_a_new_file_keeps_its_name(t: CallsBuilder) -> None:
    t.open("g")
    t.write("g", 0, N2)
    t.fsync("g")
    done(t)


@litmus("4", {}, ONO, ("d=/ d/g=n",), never={JOURNALED: lambda s: s != "d=/ d/g=n"}, since=1)
def fdatasync_of_a_new_file_in_a_new_directory_keeps_both_names(t: CallsBuilder) -> None:
    t.mkdir("d")
    t.open("d/g")
    t.write("d/g", 0, N2)
    t.fdatasync("d/g")
    done(t)


@litmus(
    "4",
    {},
    ONO,
    ("g=E", "g=0", "g=n"),
    ("g=E", "g=n"),
    never={ALL: lambda s: not s.startswith("g=")},
    since=1,
)
def fsync_of_the_directory_covers_no_data(t: CallsBuilder) -> None:
    t.open("g")
    t.write("g", 0, N2)
    t.fsync("")
    done(t)


@litmus(
    "2",
    {"a": b"a", "d": None, "b": b"b"},
    {"a": b"a", "b": b"b"},
    ("a=a b=b d=/", "b=b d=/ d/x=a", "d=/ d/x=a y=b"),
    never={JOURNALED: lambda s: "y=b" in s and "d/x=a" not in s},
)
def two_renames_persist_in_order_also_across_directories(t: CallsBuilder) -> None:
    t.move("a", "d/x")
    t.move("b", "y")


@litmus(
    "2",
    {"f": O1},
    {"o": O1, "n": b"n" * B},
    ("f=o", "f=n", "f=o g=E", "f=n g=E"),
)
def a_creation_and_an_overwrite_each_without_the_other(t: CallsBuilder) -> None:
    t.open("g")
    t.write("f", 0, b"n" * B)


@litmus(
    "2",
    {"s": b"s"},
    {"s": b"s", "n": b"n"},
    ("s=s", "s=s tmp=n", "g=n s=s", "g=n"),
    never={JOURNALED: lambda s: "s=s" not in s and s != "g=n"},
)
def a_removal_never_without_the_rename_before_it(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, b"n")
    t.fsync("tmp")
    t.move("tmp", "g")
    t.remove("s")


@litmus(
    "1",
    {"f": O4},
    {"o": O4, "cut": b"o" * 100, "o0o": b"o" * 100 + bytes(B - 100) + b"o" * 3 * B},
    ("f=o", "f=cut", "f=o0o"),
)
def truncation_zeroes_its_last_block_apart(t: CallsBuilder) -> None:
    t.truncate("f", 100)


def _punched(*ranges: tuple[int, int]) -> bytes:
    data = bytearray(O4)
    for low, high in ranges:
        data[low:high] = bytes(high - low)
    return bytes(data)


_PUNCHED = {
    "o": O4,
    "n": _punched((100, 3 * B + 100)),
    "head": _punched((100, B)),
    "tail": _punched((3 * B, 3 * B + 100)),
    "both": _punched((100, B), (3 * B, 3 * B + 100)),
}


@litmus("1", {"f": O4}, _PUNCHED, ("f=o", "f=n", "f=head", "f=tail", "f=both"))
def a_punched_range_has_ends_of_its_own(t: CallsBuilder) -> None:
    t.allocate("f", 100, 3 * B, 3)


@litmus(
    "1",
    {"a": b"a", "b": b"b"},
    {"a": b"a", "b": b"b"},
    ("a=a b=b", "a=b b=a"),
    never={JOURNALED: lambda s: "=" not in s},
)
def an_exchange_happens_or_not(t: CallsBuilder) -> None:
    t.exchange("a", "b")


@litmus("7", {"f": O1}, {"on": O1 + N2}, ("f=on",), never={ALL: lambda s: s != "f=on"}, since=1)
def an_append_with_o_dsync_is_durable_at_its_return(t: CallsBuilder) -> None:
    t.append("f", B, N2)
    t.sync(SyncKind.ODSYNC, "f", B, 2 * B)
    done(t)


@litmus("4", {}, {"n": N2}, ("tmp=n", "g=n"), never={JOURNALED: lambda s: s not in ("tmp=n", "g=n")}, since=1)
def fdatasync_does_not_make_a_rename_durable(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, N2)
    t.fsync("tmp")
    t.move("tmp", "g")
    t.fdatasync("g")
    done(t)


@litmus("4", {}, {"n": N2}, ("g=n",), never={JOURNALED: lambda s: s != "g=n"}, since=1)
def fsync_makes_a_rename_durable(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, N2)
    t.fsync("tmp")
    t.move("tmp", "g")
    t.fsync("g")
    done(t)


@litmus("4", {"f": N2}, {"n": N2}, ("f=n", "f=n p=n"), since=1)
def fdatasync_does_not_make_a_link_durable(t: CallsBuilder) -> None:
    t.link("f", "p")
    t.fdatasync("f")
    done(t)


@litmus("4", {"f": N2}, {"n": N2}, ("f=n p=n",), never={JOURNALED: lambda s: s != "f=n p=n"}, since=1)
def fsync_makes_a_link_durable(t: CallsBuilder) -> None:
    t.link("f", "p")
    t.fsync("f")
    done(t)


ONE, TWO = b"o" * 100, b"o" * 100 + b"n" * 100
_APPENDED = {
    "o": ONE,
    "on": TWO,
    "o0": ONE + bytes(100),
    "00": bytes(200),
    "0n": bytes(100) + b"n" * 100,
    "0": bytes(100),
}
EXT4 = ("ext4", "ext4-strict", "ext4-writeback")
ORDERED = ("ext4", "ext4-strict")


@litmus(
    "2",
    {"f": ONE},
    _APPENDED,
    ("f=o", "f=on", "f=o0", "f=on m=E", "f=o0 m=E"),
    never={EXT4: lambda s: s == "f=o m=E"},
)
def a_later_name_survives_only_with_the_size_of_an_append_inside_a_block(t: CallsBuilder) -> None:
    t.append("f", 100, b"n" * 100)
    t.open("m")


@litmus(
    "2",
    {},
    _APPENDED,
    ("f=o", "f=on", "f=o0", "f=on m=E", "f=o0 m=E"),
    never={EXT4: lambda s: s == "f=o m=E"},
    since=1,
)
def an_append_inside_a_block_that_was_synced_joins_the_journal_too(t: CallsBuilder) -> None:
    t.open("f")
    t.append("f", 0, ONE)
    t.fdatasync("f")
    done(t)
    t.append("f", 100, b"n" * 100)
    t.open("m")


@litmus(
    "2",
    {},
    _APPENDED,
    ("f=E", "f=0", "f=00", "f=o", "f=o0", "f=on", "f=E m=E", "f=00 m=E", "f=o0 m=E", "f=on m=E"),
    ("f=E", "f=o", "f=o0", "f=on", "f=E m=E", "f=o0 m=E", "f=on m=E"),
    since=1,
)
def a_later_name_survives_without_appends_to_a_block_that_is_not_allocated(t: CallsBuilder) -> None:
    t.open("f")
    t.fsync("f")
    done(t)
    t.append("f", 0, ONE)
    t.append("f", 100, b"n" * 100)
    t.open("m")


@litmus(
    "2",
    {},
    _APPENDED,
    ("f=E", "f=o", "f=E m=E", "f=o m=E"),
    since=1,
)
def a_later_name_survives_without_an_append_to_a_block_that_was_only_preallocated(t: CallsBuilder) -> None:
    t.open("f")
    t.allocate("f", 0, 2 * B, 1)
    t.fsync("f")
    done(t)
    t.append("f", 0, ONE)
    t.open("m")


_CUT = {
    "o": O1,
    "n": N2[:B],
    "n0": b"n" * 100 + bytes(B - 100),
    "o0": b"o" * 100 + bytes(B - 100),
    "o100": ONE,
    "n100": b"n" * 100,
    "0": bytes(100),
}


@litmus(
    "1",
    {"f": O1},
    _CUT,
    ("f=o", "f=n", "f=n0", "f=n100", "f=n100 m=E"),
    never={ORDERED: lambda s: s == "f=o100 m=E"},
)
def a_later_name_survives_only_with_the_block_that_a_truncation_ends_in(t: CallsBuilder) -> None:
    t.write("f", 0, N2[:B])
    t.truncate("f", 100)
    t.open("m")


@litmus("1", {}, _CUT, ("f=E", "f=n", "f=n0", "f=0", "f=n100", "f=0 m=E", "f=n100 m=E"), since=1)
def a_later_name_survives_without_a_block_that_a_truncation_ends_in_and_that_is_not_allocated(t: CallsBuilder) -> None:
    t.open("f")
    t.fsync("f")
    done(t)
    t.write("f", 0, N2[:B])
    t.truncate("f", 100)
    t.open("m")


@litmus(
    "1",
    {"f": O1},
    _CUT,
    ("f=o", "f=o0", "f=o100", "f=o0 m=E"),
    never={ORDERED: lambda s: s == "f=o m=E"},
    missing={"ext4-writeback": ("f=o m=E",)},
)
def bytes_that_a_truncation_cut_off_do_not_come_back(t: CallsBuilder) -> None:
    t.truncate("f", 100)
    t.truncate("f", B)
    t.open("m")


_HOLES = {
    "o": O1,
    "n": N2[:B],
    "n0n": b"n" * 100 + bytes(100) + b"n" * (B - 200),
}


@litmus(
    "1",
    {"f": O1},
    _HOLES,
    ("f=o", "f=n", "f=n0n", "f=n0n m=E"),
    never={ORDERED: lambda s: "m=E" in s and "n0n" not in s},
)
def a_later_name_survives_only_with_a_range_punched_inside_a_block(t: CallsBuilder) -> None:
    t.write("f", 0, N2[:B])
    t.allocate("f", 100, 100, 3)
    t.open("m")


@litmus(
    "1",
    {"f": O1},
    _HOLES,
    ("f=o", "f=n", "f=n0n", "f=n0n m=E"),
    never={ORDERED: lambda s: "m=E" in s and "n0n" not in s},
)
def a_later_name_survives_only_with_a_range_zeroed_inside_a_block(t: CallsBuilder) -> None:
    t.write("f", 0, N2[:B])
    t.allocate("f", 100, 100, 0x11)
    t.open("m")


@litmus(
    "2",
    {"f": ONE},
    {"n": N2[:B], **_APPENDED},
    ("f=on g=n", "f=o0 g=n"),
    never={EXT4: lambda s: s not in ("f=on g=n", "f=o0 g=n")},
    since=1,
)
def a_sync_of_another_file_covers_the_size_of_an_append_inside_a_block_not_its_bytes(t: CallsBuilder) -> None:
    t.append("f", 100, b"n" * 100)
    t.open("g")
    t.write("g", 0, N2[:B])
    t.fsync("g")
    done(t)


@litmus(
    "2",
    {"f": O1},
    {"o": O1, "n": N2[:B], "nn": N2, "on": O1 + N2[:B]},
    ("f=o", "f=n", "f=on", "f=nn"),
)
def an_overwrite_survives_without_an_append_before_it(t: CallsBuilder) -> None:
    t.append("f", B, N2[:B])
    t.write("f", 0, N2[:B])


@litmus(
    "4",
    {"f": O1, "t": b"t"},
    {"o": O1, "n": N2[:B], "t": b"t"},
    ("f=n t=t", "f=n g=t"),
    never={EXT4: lambda s: "f=n" not in s},
    since=1,
)
def an_overwrite_that_was_synced_survives_without_a_rename_before_it(t: CallsBuilder) -> None:
    t.move("t", "g")
    t.write("f", 0, N2[:B])
    t.fdatasync("f")
    done(t)


@litmus(
    "2",
    {"f": O1, "w": O1},
    {"o": O1, "n": N2[:B]},
    ("f=o w=o", "f=n w=o", "f=n w=E", "f=o w=E"),
)
def a_log_is_cut_without_the_overwrite_that_it_held(t: CallsBuilder) -> None:
    t.write("f", 0, N2[:B])
    t.truncate("w", 0)
