"""Every parser of what others wrote: valid documents to start from, and how crashcheck reads such a document.

A parser takes any bytes: it returns, or raises an error for users. `tests/base/test_parsers.py` damages each document
a little; `make fuzz` (`tests/fuzz`) searches as long as you want.
"""

from __future__ import annotations

from support.parsers import compiled, kept, recorded, sent, written
from support.parsers.parser import Parser

__all__ = ["PARSERS", "Parser"]

PARSERS = written.PARSERS | compiled.PARSERS | recorded.PARSERS | kept.PARSERS | sent.PARSERS
