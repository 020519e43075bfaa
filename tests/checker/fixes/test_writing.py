"""Edited files come into the place of the source: all of them, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.fixes import proposals
from crashcheck.checker.fixes.proposals import write
from crashcheck.checker.store import Store, config_of
from crashcheck.cli.open import newest_report
from crashcheck.cli.run import OPENED
from crashcheck.errors import CrashcheckError


def test_no_file_is_changed_where_one_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("old")
    with pytest.raises(CrashcheckError) as caught:
        write({"a.c": ("old", "new"), "gone/b.c": ("old", "new")}, tmp_path)
    assert caught.value.slug == "fix-unwritable"
    assert "gone/b.c" in str(caught.value)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.c": "old"}


def test_a_file_keeps_its_mode_and_a_link_to_it_stays_one(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("old")
    (tmp_path / "a.c").chmod(0o640)
    (tmp_path / "link.c").symlink_to("a.c")
    write({"link.c": ("old", "new")}, tmp_path)
    assert (tmp_path / "link.c").is_symlink()
    assert (tmp_path / "a.c").read_text() == "new"
    assert (tmp_path / "a.c").stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 2


def test_the_newest_run_of_the_configuration_that_is_asked_for_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for config in ("crashcheck.toml", "other.toml"):
        run = store.new_run(config)
        proposals.save(proposals.Proposals((proposals.Proposed(config, "ordering", "", None),), {}), run.path)
        (run.path / OPENED).touch()
        run.close()
    for config in ("crashcheck.toml", "other.toml"):
        known = proposals.newest(tmp_path / config)
        assert known is not None
        assert [one.id for one in known.findings] == [config]
        assert config_of(newest_report(tmp_path / config).parent) == config
    assert proposals.newest(tmp_path / "third.toml") is None
    with pytest.raises(CrashcheckError, match=r"No run of .*third\.toml has left a report") as caught:
        newest_report(tmp_path / "third.toml")
    assert "There are reports of crashcheck.toml, other.toml" in caught.value.hint
