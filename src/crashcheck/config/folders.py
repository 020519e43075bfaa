"""A check that is given many folders, as a command about a single one.

`{folders}` in [check] command, or `{states}` in [check] after and end beside [[node]].
"""

from __future__ import annotations

from crashcheck.command import Command
from crashcheck.one_folder import COMMAND, FOLDERS, STATE_COMMAND

EXCLUDED = ("pool", "acked", "stdout", "ops")  # placeholders: the lines that such a check reads hold them


def folders_command(command: Command) -> Command:
    """A command that gives one folder to a check. Its words end with the check's own."""
    return _given(command, COMMAND, command.argv(folders=FOLDERS))


def states_command(command: Command) -> Command:
    """As `folders_command`, of states of nodes."""
    return _given(command, STATE_COMMAND, command.argv(states=FOLDERS))


def _given(command: Command, begins: tuple[str, ...], own: list[str]) -> Command:
    return Command(command.text, (*begins, *own), folders_at=len(begins))
