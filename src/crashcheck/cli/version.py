"""`crashcheck version`: which versions took part, for a bug report."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from typing import Any

from crashcheck import __version__


def add_parser(subparsers: Any) -> None:
    subparsers.add_parser("version", help="show the versions of crashcheck, Python and the libraries that matter")


def main(args: argparse.Namespace) -> int:
    print(f"crashcheck {__version__}")
    print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in ("llvmlite", "numpy", "networkx", "pyelftools", "ziglang"):
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} not installed")
    return 0
