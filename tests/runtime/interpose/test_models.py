"""Every function of the C library that writes memory given by its caller has a model, or a reason not to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crashcheck.analyzer.trace.completeness import check
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime import build
from support import elf

# What a fortified function does instead of writing memory that may be a mapping.
NO_MODEL = {
    **dict.fromkeys(["__asprintf_chk", "__vasprintf_chk", "__obstack_printf_chk"], "allocates"),
    "__obstack_vprintf_chk": "allocates",
    **dict.fromkeys(["__fdelt_chk", "__longjmp_chk", "__syslog_chk", "__vsyslog_chk"], "writes no memory"),
    **dict.fromkeys(["__poll_chk", "__ppoll_chk"], "writes flags into a descriptor set"),
    **dict.fromkeys(["__fwprintf_chk", "__vfwprintf_chk", "__wprintf_chk", "__vwprintf_chk"], "wide stream"),
    **dict.fromkeys(["__swprintf_chk", "__vswprintf_chk", "__fgetws_chk", "__fgetws_unlocked_chk"], "wide text"),
    **dict.fromkeys(
        ["__mbsnrtowcs_chk", "__mbsrtowcs_chk", "__mbstowcs_chk", "__wcrtomb_chk", "__wcsnrtombs_chk",
         "__wcsrtombs_chk", "__wcstombs_chk", "__wctomb_chk"], "converts between encodings",
    ),
    **dict.fromkeys(["__gets_chk", "__getwd_chk"], "obsolete"),
    **dict.fromkeys(
        ["__confstr_chk", "__getdomainname_chk", "__getgroups_chk", "__getlogin_r_chk", "__ptsname_r_chk",
         "__ttyname_r_chk"],
        "asks about users and terminals",
    ),
}  # fmt: skip

# Functions that have no fortified form of their own, or whose form depends on the compiler.
UNFORTIFIED = [
    "bcopy", "bzero", "getentropy", "getrandom", "memccpy", "preadv", "preadv2", "preadv64", "preadv64v2", "readv",
    "recvmsg", "strlcat", "strlcpy",
]  # fmt: skip


def modelled() -> set[str]:
    lines = (build.INCLUDE / "models.def").read_text().splitlines()
    return {line[2:-1] for line in lines if line.startswith("X(")}


def fortified() -> set[str]:
    """The names of glibc's `_chk` functions, without their versions."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    libc = next(word for word in mapped if word.endswith("/libc.so.6"))
    return {name for name in elf.defined(libc) if name.endswith("_chk") and name != "__chk_fail"}


def test_every_fortified_function_has_a_model_or_a_reason_not_to() -> None:
    found, known = fortified(), modelled()
    assert len(found) > 50
    assert found - known - set(NO_MODEL) == set()
    assert set(NO_MODEL) & known == set()


def test_what_is_modelled_with_fortification_is_modelled_without() -> None:
    known = modelled()
    plain = {name.removeprefix("__").removesuffix("_chk") for name in known if name.endswith("_chk")}
    assert plain - known == set()
    assert set(UNFORTIFIED) - known == set()


def test_what_they_write_is_recorded_byte_by_byte(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("fortified", flags=("-D_DEFAULT_SOURCE", "-fno-builtin-memccpy"))
    told = {(event.offset, event.size) for event in trace.of("STORE")}
    assert {(0, 16), (100, 5), (200, 9), (300, 4), (310, 5), (400, 6), (500, 3), (600, 8)} <= told
    assert check(read(recording.trace), recording.first, recording.pool).whole


def test_what_instrumented_code_lets_the_library_fill_or_sort_is_recorded(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("given")
    told = [(event.offset, event.size) for event in trace.of("STORE") if event.size > 1]
    assert told == [(0, 8), (64, 16), (128, 16), (192, 56), (256, 56), (320, 5), (448, 4), (512, 20)]
    assert check(read(recording.trace), recording.first, recording.pool).whole
