"""A check that the bench of crashcheck_ready() runs: reads a word a page of the first 64 KiB of an image.

With --at-once it ends without freeing what it has imported.
"""

import argparse
import ctypes
import json
import mmap
import os
import sqlite3
import struct
import sys

arguments = argparse.ArgumentParser()
arguments.add_argument("folder")
arguments.add_argument("--at-once", action="store_true")
options = arguments.parse_args()
ctypes.CDLL(None).crashcheck_ready()
with open(f"{options.folder}/image", "rb") as file, mmap.mmap(file.fileno(), 65536, access=mmap.ACCESS_READ) as words:
    total = sum(struct.unpack_from("<Q", words, at)[0] for at in range(0, 65536, 4096))
database = sqlite3.connect(":memory:")
print(json.dumps(database.execute("select ?", (str(total),)).fetchone()))
if options.at_once:
    sys.stdout.flush()
    os._exit(total == 0x5EED)
sys.exit(total == 0x5EED)
