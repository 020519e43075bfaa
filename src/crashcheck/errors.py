"""Errors for users: what happened, the value that caused it, and what to do."""

from __future__ import annotations

EXIT_CLEAN = 0
EXIT_FINDINGS = 1
EXIT_FAILED = 2


class CrashcheckError(Exception):
    """Why crashcheck failed, for its user.

    `slug` names the entry in docs/messages.md; `message` describes what happened and with which value;
    `hint` describes what to do. `exit_code` is what the process returns.
    """

    def __init__(self, slug: str, message: str, hint: str = "", exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.slug = slug
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{self.message} [{self.slug}]{hint}"
