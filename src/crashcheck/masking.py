"""Secrets of a CI job: which variables a build, a workload or a check does not inherit, and what no report shows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_origin, get_type_hints

LEAST_CHARS = 8  # a shorter value is in too many words; GitHub's own advice for what it masks in logs
MASKED = "***"

_SECRET_NAME = re.compile(
    r"ACTIONS_.*|(.*_)?(TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PASS|CREDENTIALS?|APIKEY|KEY|PAT|AUTH)(_.*)?",
    re.IGNORECASE,
)
# What looks like a key, whoever printed it. Each form is a provider's own, so that no hash or replay token is one.
_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bgh[oprsu]_[0-9A-Za-z]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}|\bnpm_[0-9A-Za-z]{30,}|\bpypi-[\w-]{40,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}|\bxox[abeprs]-[\w-]{10,}|\bsk[-_](?:[a-z]+[-_])*[0-9A-Za-z_-]{20,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"
    r"|(?<=\bBearer )[\w.~+/=-]{8,}|(?<=\bBasic )[\w+/=]{8,}"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"
    r"|(?<=TOKEN=)\S{8,}|(?<=SECRET=)\S{8,}|(?<=PASSWORD=)\S{8,}|(?<=API_KEY=)\S{8,}|(?<=ACCESS_KEY=)\S{8,}",
    re.DOTALL,
)
_KEPT = {"id", "likenesses", "replay", "commit", "version"}  # names that a later run, or a replay, needs as they are

T = TypeVar("T")


def inherited_environment(*without: str) -> dict[str, str]:
    """What a configuration's command finds of our environment: not the keys to the CI job's services, and no name that
    begins as one of `without`.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(("ACTIONS_", *without))}


class Mask:
    """Replaces the values of an environment's secrets, and what looks like a key."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        secret = {
            row.strip()
            for name, value in environment.items()
            if _SECRET_NAME.fullmatch(name)
            for row in (value, *value.splitlines())
        }
        # The longest first: a value may be part of a longer one.
        values = sorted((value for value in secret if len(value) >= LEAST_CHARS), key=lambda one: (-len(one), one))
        self._values = re.compile("|".join(map(re.escape, values))) if values else None

    def text(self, text: str) -> str:
        """`text` without secrets."""
        if self._values is not None:
            text = self._values.sub(MASKED, text)
        return _KEY.sub(MASKED, text)

    def value(self, value: T) -> T:
        """A frozen dataclass, or a tuple or a table of such, without secrets in its free text."""
        return rewritten(value, lambda each: self.text(each) if isinstance(each, str) else each)


def rewritten(value: T, change: Callable[[Any], Any]) -> T:
    """`value` with `change` applied to each free text and each dataclass in it, the inner ones first."""
    made: Any = _rewritten(value, change)
    return made  # type: ignore[no-any-return]


def _rewritten(value: Any, change: Callable[[Any], Any]) -> Any:
    if type(value) is str:
        return change(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        made = tuple(_rewritten(each, change) for each in value)
        return value if all(old is new for old, new in zip(value, made, strict=True)) else made
    if isinstance(value, dict):
        return {key: _rewritten(each, change) for key, each in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    found = {name: getattr(value, name) for name in _free(type(value))}
    changed = {name: now for name, old in found.items() if (now := _rewritten(old, change)) is not old}
    return change(replace(value, **changed) if changed else value)


@cache
def _free(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass that may hold free text, not words that have a meaning to readers of a report."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        one.name for one in fields(kind) if one.name not in _KEPT and not _is_word(hints[one.name]) and one.init
    )


def _is_word(hint: Any) -> bool:
    """Whether a type is of words of our own: literals, or text of a pattern."""
    if get_origin(hint) is Annotated:
        return any(getattr(each, "pattern", None) is not None for each in hint.__metadata__)
    return get_origin(hint) is Literal
