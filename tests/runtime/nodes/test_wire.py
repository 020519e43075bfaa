"""The frames of the controller and of Python are the same."""

from __future__ import annotations

import re
from enum import IntEnum

import pytest

from crashcheck.runtime.build import INCLUDE
from crashcheck.runtime.nodes.wire import NodeEvent, NodeOrder


@pytest.mark.parametrize(("name", "python"), [("cc_order", NodeOrder), ("cc_event", NodeEvent)])
def test_the_header_and_python_number_alike(name: str, python: type[IntEnum]) -> None:
    text = re.sub(r"/\*.*?\*/", "", (INCLUDE / "nodes" / "wire.h").read_text(encoding="utf-8"), flags=re.S)
    body = re.search(rf"enum {name} {{(.*?)}};", text, re.S)
    assert body
    names = re.findall(r"\bCC_(\w+)", body[1])
    assert [(member.name, member.value) for member in python] == [(name, n) for n, name in enumerate(names, 1)]
