"""Makes the path in an editable install's .pth file relative, and so ASCII wherever the checkout is.

Python reads these files in the locale's encoding, which configure scripts set to ASCII: crashcheck-cc would not start.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def make_relative(site_packages: Path) -> None:
    """Rewrites `__editable__.crashcheck-*.pth` in place; one that is relative is left alone."""
    for file in site_packages.glob("__editable__.crashcheck-*.pth"):
        lines = os.fsdecode(file.read_bytes()).splitlines()
        relative = [os.path.relpath(line, site_packages) if os.path.isabs(line) else line for line in lines]
        file.write_bytes(b"".join(os.fsencode(line) + b"\n" for line in relative))


if __name__ == "__main__":
    make_relative(Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("purelib")))
