"""Two ways to save settings, one of which a crash can harm: what the tests of crash tests test."""

from __future__ import annotations

import json
import os
from pathlib import Path

START = {"cfg.json": "{}"}
SAVED = {"a": 1}


def careless(path: str, value: object) -> None:
    with open(path, "w", encoding="ascii") as file:
        json.dump(value, file)


def careful(path: str, value: object) -> None:
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load(path: Path) -> object:
    return json.loads(path.read_text(encoding="ascii"))
