"""`python -m crashcheck`, the same as the command `crashcheck`."""

import sys

from crashcheck.cli import main

sys.exit(main())
