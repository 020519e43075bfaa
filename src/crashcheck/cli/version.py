"""`crashcheck version`: the versions that matter in a bug report, and the compiler that would be used."""

from __future__ import annotations

import argparse
from typing import Any

from crashcheck import __version__
from crashcheck.errors import CrashcheckError


def add_parser(subparsers: Any) -> None:
    text = "show the versions of crashcheck, Python, the libraries and the compiler"
    subparsers.add_parser("version", help=text, description=f"{text[0].upper()}{text[1:]}, for a bug report.")


def main(args: argparse.Namespace) -> int:
    import importlib.metadata
    import platform

    print(f"crashcheck {__version__}")
    print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in ("llvmlite", "numpy", "networkx", "pyelftools", "ziglang"):
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} not installed")
    print(f"compiler {_compiler()}")
    return 0


def _compiler() -> str:
    """The clang that crashcheck-cc would use: its path and version."""
    from crashcheck.analyzer.compile.driver.toolchain import find_compiler

    try:
        compiler = find_compiler()
        name = "ziglang" if compiler.zig else compiler.path
        return f"{name}: {compiler.description()}"
    except (CrashcheckError, OSError) as error:
        return f"none: {error.message if isinstance(error, CrashcheckError) else error}"
