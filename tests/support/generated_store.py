"""A mapped store whose C is generated: `#line` places all of it in a grammar that the repository does not hold."""

from __future__ import annotations

from support.ledger import CONFIG, SOURCE

GRAMMAR = '#line 1 "grammar.y"\n'


def files(first: str) -> dict[str, str]:
    """A version; `first` follows the store of the owner."""
    head, body = SOURCE.split("static void put", 1)
    body = f"static void put{body}".replace("    FIRST\n", f"    {first}\n" if first else "")
    return {"ledger.c": f"{head}{GRAMMAR}{body}", "crashcheck.toml": CONFIG}
