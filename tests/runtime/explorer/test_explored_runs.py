"""One explored run for many crash images has the verdicts of running each image by itself."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.runtime import exploration
from crashcheck.runtime.build import RuntimeLibrary, build_runtime, find_compiler
from crashcheck.runtime.exploration import TABLE, Explored, OpenGranule, call_name, read_table, write_table
from support import compilers
from support.examples_tried import examples
from support.random_programs import SETTINGS

PROGRAMS = Path(__file__).resolve().parent / "programs"
HEADER = Path(exploration.__file__).resolve().parent / "include" / "explore.h"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("programs")

    def built(name: str) -> Path:
        target = folder / name
        if not target.exists():
            flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([*find_compiler(), *flags, str(PROGRAMS / f"{name}.c"), "-o", str(target)], check=True)
        return target

    return built


def test_the_python_mirror_is_that_of_the_header(tmp_path: Path) -> None:
    source = tmp_path / "sizes.c"
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\n'
        "int main(void) {\n"
        '    printf("%zu %zu %zu %zu %zu %u %u\\n",\n'
        "           sizeof(struct cc_explore_table), sizeof(struct cc_explore_granule),\n"
        "           sizeof(struct cc_explore_end), sizeof(struct cc_explore_node),\n"
        "           offsetof(struct cc_explore_table, memory_bytes), CC_EXPLORE_VERSION, CC_EXPLORE_GRANULES);\n"
        "}\n"
    )
    subprocess.run([*find_compiler(), str(source), "-o", str(tmp_path / "sizes")], check=True)
    sizes = subprocess.run([str(tmp_path / "sizes")], check=True, capture_output=True, text=True).stdout.split()
    table = exploration._TABLE.size
    mirror = (table, exploration._GRANULE.size, exploration._END.size, exploration._NODE_BYTES, table - 8)
    assert tuple(map(int, sizes)) == (*mirror, exploration.VERSION, exploration.MOST_GRANULES)
    listed = re.findall(r"CC_EXPLORE_\w+ = (\d+)", HEADER.read_text(encoding="utf-8"))
    assert sorted(map(int, listed)) == [0, *sorted(exploration._WHY)]


def explored_runs(
    command: list[str],
    image: bytes,
    granules: list[OpenGranule],
    library: RuntimeLibrary | None = None,
    timeout_s: float = 60,
    merging: bool = True,
    outputs: Sequence[str] = (),
) -> Explored:
    """`library`: the runtime, compiled in another way."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pool").mkdir()
        (folder / "pool" / "a").write_bytes(image)
        beside(folder / "pool")
        env = {
            **os.environ,
            "LD_PRELOAD": str((library or build_runtime()).shared),
            "CRASHCHECK_POOL": str(folder / "pool"),
            "CRASHCHECK_FILES": "a",
        }
        words = [command[0], str(folder / "pool" / "a"), *command[1:]]
        table = folder / "table"
        write_table(table, folder / "pool", granules, memory_bytes=None, outputs=outputs, merging=merging)
        timed_out = not ends_in_time(words, {**env, TABLE: str(table)}, timeout_s)
        done = read_table(table, len(granules), timed_out=timed_out)
        assert {path.name: path.read_bytes() for path in (folder / "pool").iterdir()} == {"a": image, **BESIDE}
        return done


BESIDE = {"a.other": bytes(4096), "a.old": b"older content"}


def beside(folder: Path) -> None:
    for name, data in BESIDE.items():
        (folder / name).write_bytes(data)


def ends_in_time(words: list[str], env: dict[str, str], timeout_s: float) -> bool:
    """Run a command whose output nobody reads; False: it was ended with all that it started."""
    with subprocess.Popen(
        words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
    ) as process:
        try:
            process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False
    return True


def one_by_one(
    command: list[str], image: bytes, granules: list[OpenGranule], outputs: Sequence[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """Exit status and output on each image; then what each of the outputs holds."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "a"
        for contents in itertools.product(*(granule.contents for granule in granules)):
            data = bytearray(image)
            for granule, content in zip(granules, contents, strict=True):
                data[granule.offset : granule.offset + granule.length] = content
            file.write_bytes(data)
            beside(file.parent)
            paths = [Path(output.replace("{pool}", name)) for output in outputs]
            for path in paths:
                path.unlink(missing_ok=True)
            done = subprocess.run([command[0], str(file), *command[1:]], capture_output=True, check=False)
            yield (done.returncode, done.stdout, *(path.read_bytes() if path.exists() else b"" for path in paths))


def holding_the_first(size: int, granules: list[OpenGranule]) -> bytes:
    data = bytearray(size)
    for granule in granules:
        data[granule.offset : granule.offset + granule.length] = granule.contents[0]
    return bytes(data)


def line(number: int, *values: int) -> OpenGranule:
    """A line that holds one of some 8-byte values at its beginning."""
    return OpenGranule("a", 64 * number, 64, tuple(value.to_bytes(8, "little") + bytes(56) for value in values))


OFFSETS = st.sampled_from([0, 1, 8, 12, 56, 60, 63, 64, 72, 120, 4032, 4088, 4093, 4096, 4100, 4160])
SIZES = st.sampled_from([1, 2, 4, 8])


LENGTHS = st.integers(1, 140)
VALUES = st.integers(0, 3)
# Each letter of a command with the strategies that fill its form in.
COMMANDS: list[tuple[str, str, tuple[st.SearchStrategy[int], ...]]] = [
    *[("{}{}@{}", letter, (SIZES, OFFSETS)) for letter in "rrr"],
    *[("{}{}@{}={}", letter, (SIZES, OFFSETS, VALUES)) for letter in "ww"],
    ("{}8@{}={}", "a", (OFFSETS, VALUES)),
    ("{}{}@{}={}", "x", (st.sampled_from([1, 4]), OFFSETS, VALUES)),
    ("{}1@{}={}", "l", (OFFSETS, LENGTHS)),
    *[("{}8@{}={}", letter, (OFFSETS, st.integers(0, 9))) for letter in "kbiiot"],
    *[("{}{}@{}", letter, (st.sampled_from([16, 32, 64]), OFFSETS)) for letter in "vV"],
    *[("{}{}@{}", letter, (LENGTHS, OFFSETS)) for letter in "RRGz"],
    ("{}{}@{}={}", "S", (LENGTHS, OFFSETS, VALUES)),
    *[("{}{}@{}>{}", letter, (LENGTHS, OFFSETS, OFFSETS)) for letter in "cmedn"],
    ("{}0@{}", "s", (OFFSETS,)),
    *[("{}", letter, ()) for letter in "?fpL"],
]
commands = st.one_of(*(st.builds(form.format, st.just(letter), *filled) for form, letter, filled in COMMANDS))
contents = st.lists(
    st.lists(st.sampled_from([0, 1, 0x0101010101010101]), min_size=8, max_size=8), min_size=2, max_size=3
).map(lambda many: tuple(dict.fromkeys(b"".join(word.to_bytes(8, "little") for word in each) for each in many)))


@pytest.fixture(scope="module", params=["as it is", "undefined behaviour traps"])
def library(request: pytest.FixtureRequest) -> RuntimeLibrary | None:
    """The runtime, and the same under UndefinedBehaviorSanitizer: what it finds ends a run by SIGILL."""
    if request.param == "as it is":
        return None
    # A trap needs no library. With a sanitizer zig's clang takes the headers' checked functions, which overload `open`.
    flags = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-U_FORTIFY_SOURCE"]
    return build_runtime([*compilers.c_compiler(), *flags])


@pytest.mark.parametrize(
    "script",
    [
        ["w8@64=1", "r8@72", "w1@130=3", "?", "l1@120=30", "r4@4094"],
        ["x4@4094=1", "k8@64=3", "b8@64=5", "i8@64=3", "t8@4092", "b8@4032=9"],
        ["v16@4090", "V32@4080", "v64@4030", "o8@4080=170", "v64@64"],
        ["d70@4030>60", "n90@64>4040", "S10@4090=1", "l1@4080=60", "s0@64"],
        ["m96@0>4100"],  # a page of which all is known once it is written, touched only afterwards
        ["m96@4100>0", "e96@0>4100"],
        ["w8@4093=1", "r8@4093"],
        ["c140@4032>60", "r8@64", "?", "r8@4096"],
        ["z64@64", "r8@64", "a8@72=1"],
        ["R140@60", "p", "r8@64", "w1@70=3", "R8@66", "p", "L", "G140@4000"],  # before it is mapped, and after
        ["G8@4094", "w8@4090=7", "G8@4094", "R64@64", "r8@4100"],
    ],
)
def test_instructions_that_touch_two_pages_are_followed(
    program: Callable[[str], Path], script: list[str], library: RuntimeLibrary | None
) -> None:
    granules = [
        OpenGranule("a", at, 64, (bytes([1, 0, 0, 0]) * 16, bytes([0, 0, 0, 1]) * 16)) for at in (64, 4032, 4096)
    ]
    image = holding_the_first(8192, granules)
    command = [str(program("script")), *script, "p"]
    done = explored_runs(command, image, granules, library)
    assert not done.why
    ends = {(os.waitstatus_to_exitcode(end.status), end.output) for end in done.ends}
    assert ends == set(one_by_one(command, image, granules))


@settings(SETTINGS, max_examples=examples(30))
@given(
    st.lists(commands, min_size=1, max_size=10),
    st.lists(st.sampled_from([0, 64, 4032, 4096]), min_size=1, max_size=3, unique=True),
    st.data(),
)
def test_explored_runs_end_like_those_of_each_image(
    program: Callable[[str], Path], script: list[str], places: list[int], data: st.DataObject
) -> None:
    granules = [OpenGranule("a", at, 64, data.draw(contents)) for at in sorted(places)]
    image = holding_the_first(8192, granules)
    command = [str(program("script")), *script, "p"]
    done = explored_runs(command, image, granules)
    assert not done.why
    ends = {(os.waitstatus_to_exitcode(end.status), end.output) for end in done.ends}
    assert ends == set(one_by_one(command, image, granules))


WRITTEN = ("{pool}/a.x", "{pool}/a.y")


def ends_with_files(done: Explored) -> set[tuple[Any, ...]]:
    return {(os.waitstatus_to_exitcode(end.status), end.output, *end.compared) for end in done.ends}


@pytest.mark.parametrize(
    "script",
    [
        ["b0", "o1xw", "w1", "b64", "w1", "fx1", "f1", "c1", "ix", "o1xr", "r1", "r1"],
        ["o1xa", "b0", "w1", "c1", "b64", "o1xa", "w1", "c1", "o1xe", "o2x+", "r2", "e23", "w2"],
        ["o1sw", "b0", "w1", "b64", "w1", "o2nw", "w2", "f2"],  # two descriptors of standard output
        ["o1zr", "R15", "b0", "o2zp", "p23", "R15", "b64", "t22", "f1", "iz", "R10", "e11", "r1"],
        ["o1zw", "b0", "w1", "iz", "c1", "o1zr", "b64", "r1", "w1"],
        ["o1xw", "o2yw", "D12", "b0", "w2", "w1", "c1", "w2", "b64", "l20", "w2", "y2", "ix", "iy"],
        ["b0", "uxw", "b64", "uxa", "b64"],
        ["o1z+", "w1", "t1", "b0", "t19", "e10", "w1", "R1", "iz"],
    ],
)
def test_each_run_has_its_own_copy_of_what_it_writes(program: Callable[[str], Path], script: list[str]) -> None:
    granules, command = [line(0, 65, 66), line(1, 67, 68)], [str(program("writer")), *script]
    done = explored_runs(command, holding_the_first(4096, granules), granules, outputs=WRITTEN)
    assert not done.why
    assert ends_with_files(done) == set(one_by_one(command, holding_the_first(4096, granules), granules, WRITTEN))


_PLACE, _AT = st.integers(0, 3), st.sampled_from([0, 2, 5, 13, 20])
_CALLS = [
    ("b{}", (st.sampled_from([0, 64]),)),
    *[("o{}{}{}", (_PLACE, st.sampled_from("xyzn"), st.sampled_from("war+ep")))] * 3,
    ("o{}s{}", (_PLACE, st.sampled_from("wa"))),
    *[("w{}", (_PLACE,))] * 2,
    *[(letter + "{}{}", (_PLACE, _AT)) for letter in "pRlet"],
    *[(letter + "{}", (_PLACE,)) for letter in "rfcy"],
    ("i{}", (st.sampled_from("xyz"),)),
    ("D{}{}", (_PLACE, _PLACE)),
]


@settings(SETTINGS, max_examples=60)
@given(st.lists(st.one_of(*(st.builds(form.format, *filled) for form, filled in _CALLS)), min_size=2, max_size=14))
def test_random_writes_end_like_those_of_each_image(program: Callable[[str], Path], script: list[str]) -> None:
    granules, command = (
        [line(0, 65, 66), line(1, 67, 68)],
        [str(program("writer")), "b0", *script, "b64", "ix", "iy", "iz"],
    )
    image = holding_the_first(4096, granules)
    done = explored_runs(command, image, granules, outputs=WRITTEN)
    assert not done.why
    assert ends_with_files(done) == set(one_by_one(command, image, granules, WRITTEN))


def test_what_is_not_read_decides_nothing(program: Callable[[str], Path]) -> None:
    done = explored_runs([str(program("locks")), "none"], bytes(4096), [line(at, 0, 1) for at in range(16)])
    (end,) = done.ends
    assert (done.why, end.status, end.output, set(end.choices)) == ("", 0, b"sound\n", {None})


def test_what_is_read_and_made_good_multiplies_nothing(program: Callable[[str], Path]) -> None:
    done = explored_runs([str(program("locks")), "release"], bytes(4096), [line(at, 0, 1) for at in range(16)])
    assert not done.why
    assert {(end.status, end.output) for end in done.ends} == {(0, b"sound\n")}
    assert len(done.ends) + done.states < 200, "of 65,536 images"


def test_runs_that_are_being_counted_are_followed_apart(program: Callable[[str], Path]) -> None:
    command, granules = [str(program("locks")), "release"], [line(at, 0, 1) for at in range(4)]
    apart = explored_runs(command, bytes(4096), granules, merging=False)
    assert (apart.why, len(apart.ends), apart.merged) == ("", 16, 0)
    assert len(explored_runs(command, bytes(4096), granules).ends) < 16


def test_an_end_lists_which_contents_lead_to_it(program: Callable[[str], Path]) -> None:
    granules = [line(0, 0, 1), line(1, 0, 1)]
    for how, number in (("spoil", signal.SIGSEGV), ("abort", signal.SIGABRT)):
        done = explored_runs([str(program("locks")), how], bytes(4096), granules)
        assert {(end.status, end.choices) for end in done.ends} == {(0, (0, None)), (number, (1, None))}


@pytest.mark.parametrize(
    ("how", "why", "final"),
    [
        ("pwrite", f"it changes the file by a system call ({call_name(18)}): change it through the mapping", True),
        (
            "print",
            f"it passes memory of the file to a system call ({call_name(1)}): copy it to other memory first",
            True,
        ),
        ("fork", f"it makes a system call that is not followed ({call_name(56)}): let it run in one process", True),
        ("again", "it maps the file more than once: map it once", True),
    ],
)
def test_what_cannot_be_followed_is_refused(program: Callable[[str], Path], how: str, why: str, final: bool) -> None:
    done = explored_runs([str(program("locks")), how], bytes(4096), [line(0, 0, 1)])
    assert done.why.startswith(why)
    assert done.final == final


def test_a_call_is_named_as_the_headers_of_the_c_library_list_it(tmp_path: Path) -> None:
    (tmp_path / "unistd_64.h").write_text("#define __NR_read 0\n#define __NR_pwrite64 18\n#define __NR_syscalls 451\n")
    lists = [tmp_path / "missing.h", tmp_path / "unistd_64.h"]
    assert [call_name(number, lists) for number in (0, 18, 19)] == ["read", "pwrite64", "number 19"]
    assert call_name(18, lists[:1]) == "number 18"


@pytest.mark.parametrize(
    "register", ["rdx", "flags", "xmm", "x87", "mxcsr", "ymm", "zmm", "zmm20", "k", "read-only", "file", "none"]
)
def test_runs_that_differ_in_one_place_alone_do_not_continue_as_one(
    program: Callable[[str], Path], register: str
) -> None:
    granules = [line(0, 0, 1), line(1, 0, 1)]
    command = [str(program("held")), register]
    done = explored_runs(command, bytes(4096), granules)
    assert not done.why
    ends = {(os.waitstatus_to_exitcode(end.status), end.output) for end in done.ends}
    assert ends == set(one_by_one(command, bytes(4096), granules)) == {(0, b""), (1, b"")}


FOLLOWED = [
    "plain",
    "kill",
    "parent",
    "sync",
    "read-only",
    "action",
    "asked",
    "names",
    "folder",
    "handler",
    "early",
    "twice",
    "advised",
]
REFUSED = [
    "other",
    "copied",
    "mask",
    "wiped",
    "second-page",
    "first-page",
    "handled",
    "handled-fault",
    "early-write",
    "twice-written",
    "dropped",
]


@pytest.mark.parametrize("how", [*FOLLOWED, *REFUSED])
def test_what_the_kernel_does_is_followed_or_refused(program: Callable[[str], Path], how: str) -> None:
    across = how.endswith("page")  # the granule is in two pages, of which one is mapped
    granule = OpenGranule("a", 4032 if across else 0, 128, (bytes(128), bytes([1] * 128)))
    command = [str(program("odd")), how]
    done = explored_runs(command, bytes(8192), [granule])
    assert bool(done.why) == (how not in FOLLOWED)
    if not done.why:
        ends = {(os.waitstatus_to_exitcode(end.status), end.output) for end in done.ends}
        assert ends == set(one_by_one(command, bytes(8192), [granule]))


def test_a_run_that_never_ends_leaves_what_was_explored_undecided(program: Callable[[str], Path]) -> None:
    done = explored_runs([str(program("odd")), "hang"], bytes(4096), [line(0, 0, 1)], timeout_s=2)
    assert (done.why, done.final) == ("its time was over", False)


def test_a_line_with_too_many_contents_may_not_be_read(program: Callable[[str], Path]) -> None:
    many = OpenGranule("a", 0, 64, ())
    assert "too much to be listed" in explored_runs([str(program("locks")), "release"], bytes(4096), [many]).why
    assert not explored_runs([str(program("locks")), "none"], bytes(4096), [many]).why
