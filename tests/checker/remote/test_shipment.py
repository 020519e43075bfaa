"""What a machine is sent: files with their holes, links and modes, and the libraries that do not come with a system."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.remote.libraries import libraries
from crashcheck.checker.remote.packing import Place, digests, packed_folder, unpack
from crashcheck.checker.remote.shipment import Shipment, setup_below, shipment_of, unfit
from crashcheck.runtime import sparse
from support import compilers
from support.checked_worlds import words


def unpacked(shipment: Shipment, root: Path) -> CheckSetup:
    unpack(shipment.description.entries, root, lambda digest: shipment.places[digest].read())
    return setup_below(shipment.description, root)


def test_a_folder_is_unpacked_with_its_holes_links_and_modes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "closed" / "empty").mkdir(parents=True)
    with (source / "pool").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 29)
        file.write(b"data")
    (source / "closed" / "file").write_bytes(b"x" * 5)
    os.link(source / "pool", source / "same")
    (source / "link").symlink_to("closed/file")
    (source / "closed" / "file").chmod(0o640)
    (source / "closed").chmod(0o500)
    places: dict[bytes, Place] = {}
    entries = tuple(packed_folder(source, "first", places))
    assert list(digests(entries)) == list(places)
    assert sum(place.size for place in places.values()) < 1 << 20
    unpack(entries, tmp_path / "there", lambda digest: places[digest].read())
    there = tmp_path / "there" / "first"
    assert sparse.equal_files(source / "pool", there / "pool")
    assert sparse.data_bytes(there) < 1 << 20
    assert (there / "pool").samefile(there / "same")
    assert os.readlink(there / "link") == "closed/file"
    assert (there / "closed" / "file").read_bytes() == b"xxxxx"
    modes = {path: stat.S_IMODE((there / path).stat().st_mode) for path in ("closed", "closed/file", "closed/empty")}
    assert modes == {"closed": 0o500, "closed/file": 0o640, "closed/empty": 0o755}


def check_setup(folder: Path, *command: str, env: dict[str, str] | None = None) -> CheckSetup:
    (folder / "first").mkdir(parents=True, exist_ok=True)
    found = CheckCommand.find(words(list(command)), folder)
    return CheckSetup(found, folder, folder / "first", folder, env=env or {})


def run_check(setup: CheckSetup) -> str:
    argv = setup.command.argv("pool", 0, "")
    env = setup.environment(Path("pool"))
    done = subprocess.run(
        argv, executable=setup.command.program, cwd=setup.folder, env=env, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_named_files_are_sent_and_have_their_places_in_commands_and_variables(tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "etc").mkdir(parents=True)
    for name in ("etc/a.conf", "b.conf", "c.conf", "unnamed"):
        (here / name).write_text(f"{name} ")
    script = here / "check"
    script.write_text('#!/bin/sh\nfor file in "${1#--config=}" "$2" "$C"; do cat "$file"; done; ls unnamed\n')
    script.chmod(0o755)
    setup = check_setup(here, "./check", "--config=etc/a.conf", str(here / "b.conf"), env={"C": str(here / "c.conf")})
    assert run_check(setup) == "etc/a.conf b.conf c.conf unnamed\n"
    shipment = shipment_of(setup, Limits())
    there = unpacked(shipment, tmp_path / "there")
    shutil.rmtree(here)
    printed = run_check(there)
    assert printed.startswith("etc/a.conf b.conf c.conf ")
    assert "unnamed" in printed.removeprefix("etc/a.conf b.conf c.conf ")
    assert "No such file" in printed


@pytest.fixture
def with_library(tmp_path: Path) -> CheckSetup:
    """A program that prints what a library of its project returns."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "own.c").write_text("int own(void) { return 42; }\n")
    (here / "main.c").write_text('#include <stdio.h>\nint own(void);\nint main(void) { printf("%d", own()); }\n')
    compiler = compilers.c_compiler()
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", "libown.so", "own.c"], cwd=here, check=True)
    rpath = f"-Wl,-rpath,{here}"
    subprocess.run([*compiler, "-o", "main", "main.c", "libown.so", rpath], cwd=here, check=True)
    return check_setup(here, "./main")


def test_libraries_of_the_project_are_sent_and_those_of_the_system_compared(
    with_library: CheckSetup, tmp_path: Path
) -> None:
    found = libraries(Path(with_library.command.program), os.environ)
    assert found["libown.so"] == with_library.folder / "libown.so"
    assert found["libc.so.6"].is_file()
    shipment = shipment_of(with_library, Limits())
    sent = [entry.path for entry in shipment.description.entries]
    assert "libraries/libown.so" in sent
    assert not any("libc.so" in path for path in sent)
    root = tmp_path / "there"
    there = unpacked(shipment, root)
    shutil.rmtree(with_library.folder)
    assert run_check(there) == "42"
    assert unfit(shipment.description, there, root) == ""


def test_a_machine_whose_libraries_or_programs_differ_is_unfit(with_library: CheckSetup, tmp_path: Path) -> None:
    shipment = shipment_of(with_library, Limits())
    root = tmp_path / "there"
    there = unpacked(shipment, root)
    (program,) = shipment.description.programs

    def why(**changed: str) -> str:
        wanted = tuple((name, changed.get(name.partition(".")[0], content)) for name, content in program.libraries)
        description = replace(shipment.description, programs=(program._replace(libraries=wanted),))
        return unfit(description, there, root)

    assert why() == ""
    assert "the library libc.so.6 of " in (differs := why(libc="another"))
    assert " is another one there (" in differs
    shutil.rmtree(with_library.folder)
    (root / "libraries" / "libown.so").unlink()
    assert "libown.so: cannot open shared object file" in why()
    shell = shipment_of(check_setup(tmp_path / "shell", "/bin/sh"), Limits()).description
    (own,) = shell.own
    assert own.path == "/bin/sh"
    assert unfit(shell, there, root) == ""
    assert unfit(replace(shell, own=(own._replace(content="x"),)), there, root) == "/bin/sh is another file there"
    gone = replace(shell, own=(own._replace(path="/bin/there-is-none"),))
    assert unfit(gone, there, root) == "/bin/there-is-none is missing there"


def test_the_paths_of_sent_files_are_those_of_here_in_outputs(with_library: CheckSetup, tmp_path: Path) -> None:
    root = tmp_path / "there"
    there = unpacked(shipment_of(with_library, Limits()), root)
    assert there.command.program.removeprefix(f"{root}/files") == with_library.command.program
    assert str(there.folder).removeprefix(f"{root}/files") == str(with_library.folder)


def test_a_program_that_is_found_on_path_is_not_sent(tmp_path: Path) -> None:
    shipment = shipment_of(check_setup(tmp_path, Path(sys.executable).name, "-c", "print(1)"), Limits())
    (own,) = shipment.description.own
    assert Path(own.path).samefile(str(shutil.which(Path(sys.executable).name)))
    assert [entry.path for entry in shipment.description.entries] == ["first"]
    assert setup_below(shipment.description, tmp_path).command.program == own.path
