"""Names as reports and ids have them: equal in each run of one program."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.analyzer.persistence.names import name_updates
from crashcheck.checker.token import digest
from crashcheck.runtime.trace_format import Kind
from support.tracing import CallsBuilder


def builder(tmp_path: Path) -> CallsBuilder:
    return CallsBuilder(tmp_path / "t.cct", {"d/": None, "important1": b"old"})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sedfGIJKP", "XXXXXX"),
        ("sedabcde1", "XXXXXX"),
        ("tmp_obj_a1B2c3", "tmpXXXXXX"),
        ("tmpab_c9d12", "tmpXXXXXX"),
        ("tmpab_c9d12.txt", "tmpXXXXXX.txt"),
        (".tmpaB3dE9", ".tmpXXXXXX"),
        ("data-1234567890", "data-XXXXXX"),
        ("cfg1234567890", "XXXXXX"),
        (".f.aB3dE9", ".f.XXXXXX"),
        ("f.aB3dE9.txt", "f.XXXXXX.txt"),
        ("kh.hZK4aB3dE9", "kh.XXXXXX"),
        ("kh.sthjabcde1", "kh.XXXXXX"),
        ("kh.abcdef", "kh.XXXXXX"),
        ("tmp.0aB3dE9xYz", "tmp.XXXXXX"),
        ("sponge.nBYsVF", "sponge.XXXXXX"),
        ("config.backup", "config.backup"),
        (".#lk0x000055d0c1a2b3c0.host.100", ".#XXXXXX.host.PID"),
        ("temp-100.aof", "temp-PID.aof"),
        ("jpegoptim-0-100.nGZCU4.tmp", "jpegoptim-0-PID.XXXXXX.tmp"),
        ("d2utmpBUoJaP", "XXXXXX"),
        ("temp-1001.aof", "temp-1001.aof"),
        (".readable.swp", ".readable.swp"),
        (".important1.swp", ".important1.swp"),
        ("short", "short"),
    ],
)
def test_what_is_random_in_an_exclusive_name_is_left_out(name: str, shown: str, tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.temporary(f"d/{name}")
    table, (update,) = name_updates(t.trace())
    assert update.change.text == f"the creation of d/{shown}"
    assert (table.shown_path(f"d/{name}"), table.true_path(3 + 1, 99)) == (f"d/{shown}", f"d/{name}")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("_MAIN_1.toc.1795537571.4901698", "_MAIN_1.toc.XXXXXX"),
        ("MAIN_2x8q9wqmd6a5skz0.seg", "MAIN_XXXXXX.seg"),
        ("db-2689b6d9-f599-4f38-bd67-b7c8f18ffb58.zo.tmp", "db-XXXXXX.zo.tmp"),
        ("74738ff5-5367-5958-9aee-98fffdcd1876.zo", "74738ff5-5367-5958-9aee-98fffdcd1876.zo"),  # of a name: no chance
        ("00000000000000001024.log", "00000000000000001024.log"),
        ("000000010000000000000001", "000000010000000000000001"),
        ("4b825dc642cb6eb9a060e54bf8d69288fbee49", "4b825dc642cb6eb9a060e54bf8d69288fbee49"),
        ("d1a5ac9a015fac2ef7b341673635512a1511f41f", "d1a5ac9a015fac2ef7b341673635512a1511f41f"),
        ("4b825dc642cb6eb9a100e54bf8d69288fbee49", "4b825dc642cb6eb9a100e54bf8d69288fbee49"),
        ("internationalization1", "internationalization1"),
    ],
)
def test_times_and_long_random_words_are_left_out_of_any_new_name(name: str, shown: str, tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.open(f"d/{name}")
    t.open("other")
    t.move("other", f"moved-{name}")
    _, updates = name_updates(t.trace())
    assert updates[-1].change.text == f"the rename of other to moved-{shown}"
    assert updates[0].change.text == f"the creation of d/{shown}"


def test_a_time_of_an_older_name_is_kept(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "t.cct", {"log.1795537571": b"old"})
    t.open("log.1795537571.gz")
    _, (update,) = name_updates(t.trace())
    assert update.change.text == "the creation of log.1795537571.gz"


def test_what_is_random_in_the_name_of_a_directory_is_left_out(tmp_path: Path) -> None:
    """As mkdtemp makes them."""
    t = builder(tmp_path)
    t.inode("pip-aB3dE9", 0o40700)
    t._names(Kind.NAME_MKDIR, "pip-aB3dE9")
    t.mkdir("d/chapter")
    _, updates = name_updates(t.trace())
    assert [update.change.text for update in updates] == ["the directory pip-XXXXXX", "the directory d/chapter"]


def test_names_that_a_program_chose_are_shown_as_they_are(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.open("index1.lockX9")
    t.open("f.aB3dE9", 0o100600)
    t.open("g.aB3dE9", 0o100644, exclusive=True)
    _, updates = name_updates(t.trace())
    assert [update.change.text[16:] for update in updates] == ["index1.lockX9", "f.aB3dE9", "g.aB3dE9"]


def test_an_exclusive_name_is_random_if_the_file_loses_it_whatever_its_permissions(tmp_path: Path) -> None:
    """As patch makes them."""
    t = builder(tmp_path)
    for name in ("f.oDCFIsU", "newindex"):
        t.open(name, 0o100644, exclusive=True)
        t.move(name, f"{name[:1]}.c")
    _, updates = name_updates(t.trace())
    shown = ["the creation of f.XXXXXX", "the rename of f.XXXXXX to f.c", "the creation of newindex"]
    assert [update.change.text for update in updates][:3] == shown


def test_a_word_of_tempfile_is_random_after_a_prefix_too(tmp_path: Path) -> None:
    """As Mercurial names what it renames; of 8 letters, digits and underscores some have letters alone."""
    t = builder(tmp_path)
    for name in (".dirstate-6zyedxmv~", ".dirstate-abcdefgh~", "d/q_3x_z8w.part", ".tmp_9cecv_h1"):
        t.temporary(name)
        t.move(name, "moved")
    t.temporary("secrets-document")
    _, updates = name_updates(t.trace())
    assert [update.change.text for update in updates] == [
        "the creation of .dirstate-XXXXXX~",
        "the rename of .dirstate-XXXXXX~ to moved",
        "the creation of .dirstate-XXXXXX~ (2)",
        "the rename of .dirstate-XXXXXX~ (2) to moved",
        "the creation of d/XXXXXX.part",
        "the rename of d/XXXXXX.part to moved",
        "the creation of .tmpXXXXXX",
        "the rename of .tmpXXXXXX to moved",
        "the creation of secrets-document",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (".temp1Rs6M", ".tempXXXXXX"),
        ("cfg.json.4f9d0b2c6e8a41d7b3c5d9e0f1a2b3c4", "cfg.json.XXXXXX"),
        ("cfg.json.1f3a9b2c.tmp", "cfg.json.XXXXXX.tmp"),
        ("cfg.json.qwertz", "cfg.json.XXXXXX"),
        (".cfg.k3jaxbab9.json", ".cfg.XXXXXX.json"),
        ("cfg.jsonabcdef", "cfg.jsonXXXXXX"),
        ("cfg.json.tmp-k3j9-x2_ab", "cfg.json.tmpXXXXXX"),
        ("cfg.json.tmp123456789", "cfg.json.tmpXXXXXX"),
        ("abcdef-cfg.json.part", "XXXXXX-cfg.json.part"),
        ("cfg.json.backup", "cfg.json.backup"),
        ("cfg.json.rewrite", "cfg.json.rewrite"),
        ("cfg.json.save-in-progress2", "cfg.json.save-in-progress2"),
        ("cfg.json.000017", "cfg.json.000017"),
        ("cfg.json.important1", "cfg.json.important1"),
        ("NewConfigFile", "NewConfigFile"),
        ("snapshot2", "snapshot2"),
        ("important1.tmp", "important1.tmp"),
        ("000017.dbtmp", "000017.dbtmp"),
    ],
)
def test_what_is_random_in_a_name_that_a_file_has_until_it_is_renamed_is_left_out(
    name: str, shown: str, tmp_path: Path
) -> None:
    """Also if the file was not made exclusively, as programs that take a UUID's digits for a name make them."""
    t = builder(tmp_path)
    t.open(f"d/{name}")
    t.move(f"d/{name}", "d/cfg.json")
    _, updates = name_updates(t.trace())
    assert [update.change.text for update in updates] == [
        f"the creation of d/{shown}",
        f"the rename of d/{shown} to d/cfg.json",
    ]


def test_a_word_that_differs_each_time_that_a_file_is_written_anew_is_left_out(tmp_path: Path) -> None:
    t = builder(tmp_path)
    for word in ("qwertyui", "asdfghjk"):
        t.open(f"cfg.json.{word}")
        t.move(f"cfg.json.{word}", "cfg.json")
    _, updates = name_updates(t.trace())
    assert updates[0].change.text == "the creation of cfg.json.XXXXXX"


def test_what_is_added_to_a_name_twice_is_no_chance(tmp_path: Path) -> None:
    t = builder(tmp_path)
    for last in ("cfg.json", "cfg.json"):
        t.open("cfg.json.unsealed")
        t.move("cfg.json.unsealed", last)
    _, updates = name_updates(t.trace())
    assert updates[0].change.text == "the creation of cfg.json.unsealed"


def test_hexadecimal_digits_are_chance_although_a_process_uses_them_twice(tmp_path: Path) -> None:
    t = builder(tmp_path)
    for last in ("a.cache", "b.cache"):
        t.open("331fb881a78f")
        t.move("331fb881a78f", last)
    _, updates = name_updates(t.trace())
    assert updates[0].change.text == "the creation of XXXXXX"


def test_a_name_of_a_letter_is_in_no_other(tmp_path: Path) -> None:
    t = builder(tmp_path)
    for name, last in (("a-newcomer", "a"), ("avocadotree", "av")):
        t.open(name)
        t.move(name, last)
    _, updates = name_updates(t.trace())
    assert [update.change.text for update in updates][::2] == [
        "the creation of a-XXXXXX",
        "the creation of avocadotree",
    ]


def test_a_digest_is_shown_where_it_is_the_last_name_of_a_file(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.open("object.tmp")
    t.move("object.tmp", "4f9d0b2c6e8a41d7b3c5d9e0f1a2b3c4")
    _, updates = name_updates(t.trace())
    assert updates[-1].change.text == "the rename of object.tmp to 4f9d0b2c6e8a41d7b3c5d9e0f1a2b3c4"


def test_files_that_would_be_shown_as_the_same_are_numbered_as_they_were_created(tmp_path: Path) -> None:
    t = builder(tmp_path)
    t.temporary("d/o_a1B2c3")
    t.temporary("d/o_Z9y8X7")
    t.temporary("o_q1w2E3")
    t.move("d/o_a1B2c3", "d/kept")
    _, updates = name_updates(t.trace())
    assert [update.change.text for update in updates] == [
        "the creation of d/XXXXXX",
        "the creation of d/XXXXXX (2)",
        "the creation of XXXXXX",
        "the rename of d/XXXXXX to d/kept",
    ]


def test_recordings_that_differ_in_random_names_alone_share_replay_tokens(tmp_path: Path) -> None:
    def recorded(name: str) -> bytes:
        t = builder(tmp_path)
        t.temporary(name)
        t.write(name, 0, b"new")
        t.move(name, "important1")
        return digest(t.trace())

    assert recorded("f-a1B2c3") == recorded("f-Z9y8X7") != recorded("g-a1B2c3")


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("dla1B2c3", "dlZabcde"), "XXXXXX"),
        (("tmpa1b2c3d4", "tmpabcdefgh"), "tmpXXXXXX"),
        (("e3b0c442", "abcde123"), "XXXXXX"),
        (("t20261128-100-1a2b3c", "t20270101-100-abcdef"), "tXXXXXX-PID-XXXXXX"),
        (("prefixabc123xy", "prefixabcdefgh"), "XXXXXX"),  # Python's, behind a prefix without a mark
        (("prefix_8x_2ab.json", "prefixabcdefgh.json"), "XXXXXX.json"),
        (("cfgtiLctmZU", "cfgwle_nKt_", "cfg_e1nKt_9"), "XXXXXX"),  # File::Temp of Perl
        (("job_rEqUN.dat", "job__RLII.dat"), "XXXXXX.dat"),
        (("cfg-1234567890.json", "cfg-29865679.json"), "cfg-XXXXXX.json"),  # Go's
        (("tmp_bcd3fgh", "tmp6_cdefgh", "tmpabcdefgh"), "tmpXXXXXX"),
        (("state-abcdefgh.part", "state-a1b2c3d4.part"), "state-XXXXXX.part"),
    ],
)
def test_names_of_makers_are_equal_whatever_characters_they_have(
    names: tuple[str, ...], shown: str, tmp_path: Path
) -> None:
    for name in names:
        t = builder(tmp_path)
        t.temporary(name)
        t.move(name, "moved")
        _, updates = name_updates(t.trace())
        assert updates[0].change.text == f"the creation of {shown}"


@pytest.mark.parametrize("name", ["vDx3-_Kq8bZ1aT0wR-5yNg", "_-3xKq8bZ1aT0wR_5yNgA-"])
def test_base64_for_names_is_one_word(name: str, tmp_path: Path) -> None:
    for given, last, shown in ((name, "cfg.json", "XXXXXX"), (f"cfg.json.{name}", "cfg.json", "cfg.json.XXXXXX")):
        t = builder(tmp_path)
        t.open(given)
        t.move(given, last)
        _, updates = name_updates(t.trace())
        assert updates[0].change.text == f"the creation of {shown}"


@pytest.mark.parametrize("name", ["python3", "events", "libxcb-render0", "TODO.Debian", "CHANGELOG_V13.md"])
def test_what_people_call_a_file_is_shown_with_the_words_that_they_add_to_it(name: str, tmp_path: Path) -> None:
    """Of files that are made as mkstemp makes them, too, and when they are put away under a longer name."""
    t = builder(tmp_path)
    t.temporary(f"{name}.tmp")
    t.move(f"{name}.tmp", name)
    t.move(name, f"{name}.1")
    t.temporary(f"d/{name}")
    t.move(f"d/{name}", f"d/{name}.1")
    _, updates = name_updates(t.trace())
    names = {word for update in updates for word in update.change.text.split() if name[:3] in word}
    assert names == {f"{name}.tmp", name, f"{name}.1", f"d/{name}", f"d/{name}.1"}


def test_lock_files_and_names_of_a_known_pattern_are_shown(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "t.cct", {"16383_fsm": b"old"})
    for name in ("writer.lock", "16384_fsm"):
        t.temporary(name)
        t.remove(name)
    _, updates = name_updates(t.trace())
    assert [update.change.text for update in updates][::2] == [
        "the creation of writer.lock",
        "the creation of 16384_fsm",
    ]
