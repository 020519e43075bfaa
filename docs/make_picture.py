"""Makes docs/report.png, the picture of a report in the README, from an HTML report.

    crashcheck run -c examples/level-hash/buggy.toml --format html=build/report.html
    python docs/make_picture.py build/report.html docs/report.png

Needs Debian's `chromium`; the picture is of the page's top, in CSS pixels.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Without these, Chromium looks for its maker's hosts at every start.
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path, help="an HTML report")
    parser.add_argument("picture", type=Path, help="the PNG file to write")
    parser.add_argument("--width", type=int, default=1240, help="CSS pixels (default: %(default)s)")
    parser.add_argument("--height", type=int, default=1200, help="CSS pixels (default: %(default)s)")
    parser.add_argument("--dark", action="store_true", help="as on a screen that prefers dark")
    options = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("make_picture: no chromium on PATH; install Debian's package chromium", file=sys.stderr)
        return 2
    scheme = ["--blink-settings=preferredColorScheme=0"] if options.dark else []
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *QUIET, *scheme, f"--user-data-dir={profile}"]
        command += [f"--window-size={options.width},{options.height}", f"--screenshot={options.picture.resolve()}"]
        done = subprocess.run(
            [*command, options.report.resolve().as_uri()], capture_output=True, text=True, check=False
        )
    if done.returncode or not options.picture.is_file():
        print(f"make_picture: chromium ended with {done.returncode}\n{done.stderr}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
