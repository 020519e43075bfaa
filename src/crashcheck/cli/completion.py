"""`crashcheck completion SHELL`: a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from crashcheck.errors import CrashcheckError

_SHELLS = ("bash", "zsh", "fish")
_DESCRIPTION = """\
Prints a script with which the shell completes crashcheck's commands and options.

  bash    source <(crashcheck completion bash)      in ~/.bashrc
  zsh     source <(crashcheck completion zsh)       in ~/.zshrc, after compinit
  fish    crashcheck completion fish | source       in ~/.config/fish/config.fish
"""
# What follows -- is a command of the user's, completed as such where bash-completion is loaded.
_BASH = """\
_crashcheck() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= at
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        if [[ ${COMP_WORDS[at]} == -- ]]; then
            if declare -F _command_offset > /dev/null; then _command_offset $((at + 1))
            elif ((at + 1 == COMP_CWORD)); then COMPREPLY=($(compgen -c -- "$word")); fi
            return
        fi
    done
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "@COMMANDS@" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]} $before" in
@VALUES@
    esac
    if [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    elif [[ $word == -* ]]; then
        case ${COMP_WORDS[1]} in
@OPTIONS@
        esac
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}
complete -o bashdefault -o default -F _crashcheck crashcheck
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", metavar="SHELL", help=", ".join(_SHELLS))


def main(args: argparse.Namespace) -> int:
    from crashcheck.cli import build_parser

    if args.shell not in _SHELLS:
        raise CrashcheckError(
            "bad-option", f"There is no completion for the shell {args.shell!r}.", f"Known are {', '.join(_SHELLS)}."
        )
    commands = _commands(build_parser())
    if args.shell == "fish":
        print(*_fish(commands), sep="\n")
    else:
        print(
            "autoload -U bashcompinit && bashcompinit\n" if args.shell == "zsh" else "", _bash(commands), sep="", end=""
        )
    return 0


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (action for action in parser._actions if action.option_strings)


def _bash(commands: dict[str, argparse.ArgumentParser]) -> str:
    values, options = [], []
    for name, parser in commands.items():
        known = [word for action in _options(parser) for word in action.option_strings]
        options.append(f'            {name}) words="{" ".join(known)}" ;;')
        for action in _options(parser):
            if action.choices:
                patterns = "|".join(f'"{name} {word}"' for word in action.option_strings)
                values.append(f'        {patterns}) words="{" ".join(map(str, action.choices))}" ;;')
    script = _BASH.replace("@COMMANDS@", " ".join(commands)).replace("@VALUES@", "\n".join(values))
    return script.replace("@OPTIONS@", "\n".join(options))


def _fish(commands: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield f"complete -c crashcheck -n __fish_use_subcommand -f -a '{' '.join(commands)}'"
    for name, parser in commands.items():
        for action in _options(parser):
            words = [f"-{'l' if word.startswith('--') else 's'} {word.lstrip('-')}" for word in action.option_strings]
            values = f" -x -a '{' '.join(map(str, action.choices))}'" if action.choices else ""
            needs = " -r" if action.nargs != 0 and not action.choices else ""
            yield f"complete -c crashcheck -n '__fish_seen_subcommand_from {name}' {' '.join(words)}{needs}{values}"
