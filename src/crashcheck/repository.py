"""The repository of a project: its root folder, and the names of the project's files in it."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository's root folder, and the project's folder below it ("" if they are the same; else with "/")."""

    root: Path
    prefix: str = ""

    def name(self, file: str) -> str:
        """`file`, as a finding names it, relative to the root, with "/" and links resolved; "" if it is outside.

        A link that leads out of the repository, or a file that does not exist, keeps the name that it has.
        """
        if not file or "\0" in file:
            return ""
        if file.startswith("/"):
            root = self.root.as_posix().rstrip("/") + "/"
            inside = posixpath.normpath(file)
            if not inside.startswith(root):
                return ""
            inside = inside[len(root) :]
        else:
            inside = posixpath.normpath(posixpath.join(self.prefix, file))
            if inside in (".", "..") or inside.startswith("../"):
                return ""
        try:
            resolved = os.path.realpath(self.root / inside)
            return Path(resolved).relative_to(self.root).as_posix() if resolved != str(self.root) else ""
        except (OSError, ValueError):
            return inside


def repository_of(folder: Path) -> Repository:
    """The repository that holds `folder`: the nearest folder above it with a `.git`, else `folder` itself."""
    here = Path(os.path.realpath(folder))
    for root in (here, *here.parents):
        if os.path.lexists(root / ".git"):
            prefix = here.relative_to(root).as_posix()
            return Repository(root, "" if prefix == "." else prefix)
    return Repository(here)
