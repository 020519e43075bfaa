"""The shared libraries that a program loads, as its dynamic loader finds them; the program itself is not run."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

_LINE = re.compile(r"\s*(?:(?P<name>.+?) => )?(?P<path>/.+?) \(0x[0-9a-f]+\)")
_MOST_S = 30.0
_SYSTEM = ("/usr/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/bin/", "/sbin/")
_INSTALLED_BY_HAND = "/usr/local/"


def is_of_system(path: Path) -> bool:
    """Whether a file comes with the operating system or container image: each machine has its own, which must be
    equal."""
    return str(path).startswith(_SYSTEM) and not str(path).startswith(_INSTALLED_BY_HAND)


class NotListed(Exception):
    """The loader does not list the libraries of a program; the text is what it prints."""


def libraries(program: Path, env: Mapping[str, str]) -> dict[str, Path]:
    """By the names under which they are searched, the loader itself included; none of what is no dynamic program.

    Raises NotListed.
    """
    loader = _loader(program)
    if loader is None:
        return {}
    plain = {name: value for name, value in env.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [loader, "--list", str(program)],
            env=plain,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MOST_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotListed(str(error)) from error
    if done.returncode:
        raise NotListed(os.fsdecode(done.stderr).strip() or f"{loader} --list failed")
    found = {}
    for line in os.fsdecode(done.stdout).splitlines():
        if match := _LINE.fullmatch(line):
            found[match["name"] or Path(match["path"]).name] = Path(match["path"])
    return found


def _loader(program: Path) -> str | None:
    try:
        with program.open("rb") as file:
            segments = ELFFile(file).iter_segments("PT_INTERP")
            return next((each.get_interp_name() for each in segments if isinstance(each, InterpSegment)), None)
    except (ELFError, OSError, UnicodeDecodeError):
        return None
