"""A JSON report as two runs of the same search must print it."""

from __future__ import annotations

import json
import subprocess
from typing import Any


def timeless_report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """A JSON report without its times and without the place of the recording."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: timeless(each) for key, each in value.items() if key not in ("seconds", "first_state_s", "phases")
            }
        return [timeless(each) for each in value] if isinstance(value, list) else value

    assert done.returncode in (0, 1), done.stderr
    read: dict[str, Any] = timeless(json.loads(done.stdout))
    read["run"]["trace"]["path"] = ""
    return read
