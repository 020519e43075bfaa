"""Cuts what crashcheck asks of GitHub out of GitHub's OpenAPI description:
`python make_api_slice.py PACKAGE > github_api.json`.

PACKAGE is the unpacked npm package @octokit/openapi (`npm pack @octokit/openapi`); MIT, by the Octokit contributors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = "/repos/{owner}/{repo}"
USED = {
    "/user": ("get",),
    f"{REPOSITORY}/pulls": ("get",),
    f"{REPOSITORY}/pulls/{{pull_number}}/files": ("get",),
    f"{REPOSITORY}/issues/{{issue_number}}/comments": ("get", "post"),
    f"{REPOSITORY}/issues/comments/{{comment_id}}": ("patch", "delete"),
    f"{REPOSITORY}/issues/comments/{{comment_id}}/reactions": ("post",),
    f"{REPOSITORY}/issues/comments/{{comment_id}}/reactions/{{reaction_id}}": ("delete",),
    f"{REPOSITORY}/commits/{{ref}}/check-runs": ("get",),
    f"{REPOSITORY}/check-runs": ("post",),
    f"{REPOSITORY}/check-runs/{{check_run_id}}": ("get", "patch"),
    f"{REPOSITORY}/pulls/{{pull_number}}/comments": ("get",),
    f"{REPOSITORY}/pulls/comments/{{comment_id}}": ("delete",),
    f"{REPOSITORY}/pulls/{{pull_number}}/reviews": ("get", "post"),
    f"{REPOSITORY}/pulls/{{pull_number}}/reviews/{{review_id}}": ("put",),
}


def references(value: Any) -> Iterator[str]:
    """Each `$ref` within `value`."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def cut(whole: dict[str, Any]) -> dict[str, Any]:
    """The description of USED alone, with all that it refers to, directly or not."""
    paths = {path: {method: whole["paths"][path][method] for method in methods} for path, methods in USED.items()}
    made = {"openapi": whole["openapi"], "info": whole["info"], "servers": whole["servers"], "paths": paths}
    seen: set[str] = set()
    waiting = list(references(paths))
    while waiting:
        reference = waiting.pop()
        if reference in seen:
            continue
        seen.add(reference)
        *folders, name = reference.removeprefix("#/").split("/")
        source: Any = whole
        target: Any = made
        for folder in folders:
            source = source[folder]
            target = target.setdefault(folder, {})
        target[name] = source[name]
        waiting += references(source[name])
    return made


if __name__ == "__main__":
    description = json.loads((Path(sys.argv[1]) / "generated" / "api.github.com.json").read_text(encoding="utf-8"))
    json.dump(cut(description), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
