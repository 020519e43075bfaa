"""Names of functions that are instantiations of templates, as one name."""

from __future__ import annotations

import re

_OPERATOR = re.compile(r"(?<!\w)operator(?!\w)")  # its name may be `operator<<`, or have a type with arguments
_ARGUMENTS = re.compile(r"<[^<>]*>")


def of_template(function: str) -> str:
    """A function's name without template arguments: all instantiations of a template are one place."""
    operator = _OPERATOR.search(function)
    head = function if operator is None else function[: operator.start()]
    while (plain := _ARGUMENTS.sub("", head)) != head:
        head = plain
    return head if operator is None else head + function[operator.start() :]
