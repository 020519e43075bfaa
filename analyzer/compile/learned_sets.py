"""The belonging sets of a program's sites (AI §2.1), and the file that keeps them from one build to the next."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from crashcheck.analyzer.compile.site_names import NamedSite
from crashcheck.errors import CrashcheckError

FORMAT = "crashcheck anticipating invariants"
VERSION = 2  # bump when a reader of the file would misread it
_HINT = "Remove it, and learn again with `crashcheck learn`."


@dataclass(frozen=True, slots=True)
class LearnedSite:
    """A site with its belonging set: names of its remote predecessors, None being nil.

    `shared`: it accessed a variable that several threads accessed (AI §3.2, footnote). Of other sites the set is kept,
    for it counts if a later run shows them to share.
    """

    site: NamedSite
    shared: bool
    before: frozenset[str | None]


@dataclass(frozen=True, slots=True)
class LearnedSets:
    """What passing runs taught. `sites`: by name; `codes`: the hash of each function's code, by NamedSite.code."""

    runs: int = 0
    sites: Mapping[str, LearnedSite] = field(default_factory=dict)
    codes: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> str:
        """JSON, equal for equal contents, with one line per site."""
        head = {"format": FORMAT, "version": VERSION, "runs": self.runs}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        codes = [f"  {json.dumps(function)}: {json.dumps(code)}" for function, code in sorted(self.codes.items())]
        sites = []
        for name, learned in sorted(self.sites.items()):
            document = {
                "site": name,
                "code": learned.site.code,
                "where": learned.site.where,
                "function": learned.site.function,
                "variable": learned.site.variable,
                "shared": learned.shared,
                "before": sorted(learned.before, key=lambda other: (other is not None, other or "")),
            }
            sites.append(f"  {json.dumps(document)}")
        lines.append('"codes": {\n' + ",\n".join(codes) + "\n }")
        lines.append('"sites": [\n' + ",\n".join(sites) + "\n ]")
        return "{\n " + ",\n ".join(lines) + "\n}\n"

    @classmethod
    def decode(cls, text: str, origin: str) -> Self:
        """Raises CrashcheckError learned-corrupt and learned-version, naming `origin`."""
        try:
            document = json.loads(text)
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise CrashcheckError("learned-corrupt", f"{origin} is no file of `crashcheck learn`.", _HINT)
            if document["version"] != VERSION:
                raise CrashcheckError(
                    "learned-version",
                    f"{origin} has version {document['version']}; this crashcheck reads version {VERSION}.",
                    _HINT,
                )
            sites = {
                str(one["site"]): LearnedSite(
                    NamedSite(one["site"], one["code"], one["where"], one["function"], one["variable"]),
                    bool(one["shared"]),
                    frozenset(one["before"]),
                )
                for one in document["sites"]
            }
            learned = cls(int(document["runs"]), sites, dict(document["codes"]))
            named = {name for one in sites.values() for name in one.before if name is not None}
            if not named <= sites.keys() or not {one.site.code for one in sites.values()} <= learned.codes.keys():
                raise ValueError("it names sites or functions that it does not define")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CrashcheckError("learned-corrupt", f"{origin} is damaged: {error!r}.", _HINT) from error
        return learned

    @classmethod
    def load(cls, path: Path) -> Self:
        """The sets in a file. Raises CrashcheckError learned-missing, learned-corrupt, learned-version."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CrashcheckError(
                "learned-missing", f"{path}: no such file.", "`crashcheck learn` makes it from passing runs."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CrashcheckError("learned-corrupt", f"{path} cannot be read: {error}.", _HINT) from error
        return cls.decode(text, str(path))

    def save(self, path: Path) -> None:
        """Replace the file in one step: interrupted, it stays as it was. Raises CrashcheckError learned-unwritable."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            temporary.write_text(self.encode(), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise CrashcheckError("learned-unwritable", f"{path} cannot be written: {error.strerror}.") from error
