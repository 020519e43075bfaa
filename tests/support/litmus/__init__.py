"""The litmus tests of the persistence models, one file per model; `case` has what they share."""

from __future__ import annotations

from support.litmus import eadr, page_cache, px86
from support.litmus.case import LITMUS, Litmus

__all__ = ["LITMUS", "Litmus", "eadr", "page_cache", "px86"]
