"""A check that is given many folders, as a command about a single one: `{folders}` in [check] command."""

from __future__ import annotations

from crashcheck.command import Command
from crashcheck.one_folder import COMMAND, FOLDERS

EXCLUDED = ("pool", "acked", "stdout", "ops")  # placeholders: the lines that such a check reads hold them


def folders_command(command: Command) -> Command:
    """A command that gives one folder to a check. Its words end with the check's own."""
    own = command.argv(folders=FOLDERS)
    return Command(command.text, (*COMMAND, *own), folders_at=len(COMMAND))
