"""The templates of the reports, compiled once: a cache keeps them under the hash of all that they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket

from crashcheck.cache import cache_folder

_REPORTS = Path(__file__).resolve().parent.parent


def environment(**options: Any) -> Environment:
    """A strict environment for the templates of this package that escapes what they show."""
    return Environment(
        loader=PackageLoader("crashcheck.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_CompiledTemplates(cache_folder() / f"templates-{_key()}"),
        **options,
    )


@cache
def _key() -> str:
    """Hash of what compiled templates depend on besides their own text: filters may be applied to constants."""
    digest = hashlib.sha256(f"{sys.version} {jinja2.__version__}".encode())
    for source in sorted(_REPORTS.rglob("*.py")):
        digest.update(str(source).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


class _CompiledTemplates(BytecodeCache):
    """One file per template and text. A folder that cannot be read or written costs time and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            bucket.code = marshal.loads(self._file(bucket).read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            # Several processes may write at once: each file gets its name when it is complete.
            handle, name = tempfile.mkstemp(dir=self._folder)
            with open(handle, "wb") as file:
                file.write(marshal.dumps(bucket.code))
            os.replace(name, self._file(bucket))

    def _file(self, bucket: Bucket) -> Path:
        return self._folder / f"{bucket.key}-{bucket.checksum}"
