"""A shell script that runs the check on a kept crash image as a worker runs it: anywhere, as often as you like."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck.checker.execution.check_command import CheckSetup

_SCRIPT = """\
#!/bin/sh
# Runs the check on a copy of the crash image {image}, with the environment and the addresses of its files that it had.
# Words are put before the command: `{script} gdb --args` debugs it.
set -e
rm -rf {copy}
cp -a {image} {copy}
cd {folder}
fixed=
setarch -R true 2> /dev/null && fixed='setarch -R'
{exports}
exec $fixed "$@" {command}
"""


def files_beside(image: Path) -> dict[str, Path]:
    """What may be written beside an image, by the endings of the names; ".run" is the copy that the script makes."""
    endings = (".sh", ".operations", ".stdout", ".addresses", ".run")
    return {ending: image.with_name(image.name + ending) for ending in endings}


@dataclass(frozen=True, slots=True, eq=False)
class CheckOnImage:
    """One run of the check. `printed`: what {stdout} holds; `operations`: what {ops} holds, if it is given that."""

    setup: CheckSetup
    acked: int
    printed: bytes
    operations: bytes | None

    def write_script(self, image: Path) -> Path:
        """Write the script for an image, an absolute path, and what it needs, beside that; the script's path."""
        beside, setup = files_beside(image), self.setup
        copy, script, stdout = beside[".run"], beside[".sh"], beside[".stdout"]
        ops = beside[".operations"] if self.operations is not None else None
        if ops is not None:
            ops.write_bytes(self.operations or b"")
        if setup.command.command.holds("stdout"):
            stdout.write_bytes(self.printed)
        if setup.addresses is not None and setup.addresses.is_file():
            shutil.copyfile(setup.addresses, beside[".addresses"])
            setup = replace(setup, addresses=beside[".addresses"])
        first, *rest = setup.command.argv(str(copy), self.acked, str(stdout), None if ops is None else str(ops))
        words = [first if "/" in first else setup.command.program, *rest]
        exports = [f"export {name}={shlex.quote(value)}" for name, value in setup.added(copy).items()]
        if setup.preload is not None:
            exports.append(f"export LD_PRELOAD={shlex.quote(str(setup.preload))}${{LD_PRELOAD:+:$LD_PRELOAD}}")
        names = {"image": image, "script": script, "copy": copy, "folder": setup.folder}
        quoted = {name: shlex.quote(str(path)) for name, path in names.items()}
        script.write_text(
            _SCRIPT.format(**quoted, exports="\n".join(exports), command=shlex.join(words)), encoding="utf-8"
        )
        script.chmod(0o755)
        return script
