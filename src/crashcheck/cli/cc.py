"""crashcheck-cc and crashcheck-c++: console scripts that start as fast as Python lets them."""

from __future__ import annotations

import sys


def main_c() -> int:
    """The C compiler."""
    from crashcheck.analyzer.compile.driver.client import main

    return main(sys.argv[1:], False)


def main_cxx() -> int:
    """The C++ compiler."""
    from crashcheck.analyzer.compile.driver.client import main

    return main(sys.argv[1:], True)
