"""A virtual machine with Debian's kernel and one program of ours: packages, initramfs and disk. Needs no root.

Packages are downloaded and unpacked into the cache of tests/real, never installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import real_programs
from real_programs import Unavailable

from crashcheck.analyzer.persistence.graph import STALE_BYTE

HERE = Path(__file__).resolve().parent
DISK_BYTES = 64 << 20
STALE = bytes([STALE_BYTE])  # what free blocks hold
BLOCK = 4096
_MODULES = ("virtio_pci", "virtio_blk")
_KERNEL, _QEMU = "linux-image-cloud-amd64", "qemu-system-x86"
_SECONDS = 3600


def kernel() -> Path:
    """The folder with the unpacked package of Debian's kernel. Raises Unavailable."""
    depends = _output(["apt-cache", "depends", _KERNEL])
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if not found:
        raise Unavailable(f"apt knows no package {_KERNEL} (Debian; `apt-get update` fetches the lists).")
    return _unpacked(found[1], ["apt-get", "download", "-q", found[1]])


def qemu() -> tuple[list[str], dict[str, str]]:
    """The command of QEMU, installed or unpacked, and its environment. Raises Unavailable."""
    installed = shutil.which("qemu-system-x86_64")
    if installed:
        return [installed], dict(os.environ)
    listing = ["apt-get", "-qq", "--print-uris", "--no-install-recommends", "-o", "Dir::Cache::archives=/var/empty"]
    names = re.findall(r" (\S+?)_\S+\.deb ", _output([*listing, "install", _QEMU]))
    if not names:
        raise Unavailable(f"There is no qemu-system-x86_64, and apt knows no package {_QEMU}.")
    root = _unpacked(_QEMU, ["apt-get", "download", "-q", *names])
    libraries = [str(folder) for folder in (root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu")]
    firmware = [word for name in ("qemu", "seabios") for word in ("-L", str(root / "usr/share" / name))]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    return [str(root / "usr/bin/qemu-system-x86_64"), *firmware], environment


def make_disk(path: Path) -> None:
    """An empty ext4 whose free blocks hold STALE; the last block of the disk is not part of it."""
    mkfs = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if mkfs is None:
        raise Unavailable("mkfs.ext4 is missing (package e2fsprogs).")
    path.write_bytes(STALE * DISK_BYTES)
    options = ["-q", "-F", "-b", str(BLOCK), "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-N", "8192"]
    _run([mkfs, *options, "-U", "clear", str(path), str(DISK_BYTES // BLOCK - 1)])


def boot(folder: Path, script: list[str], mount: str) -> Path:
    """Run a script of guest.c on folder/disk.img, with these options of the mount. Returns the log of its writes."""
    packages = kernel()
    words, environment = qemu()
    guest = folder / "guest"
    _run(
        ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-static", str(HERE / "guest.c"), "-o", str(guest)]
    )
    modules = list(_modules(packages))
    files = {"init": guest.read_bytes(), **{path.name: path.read_bytes() for path in modules}}
    first = [*(f"module /{path.name}" for path in modules), "wait-for-disk", f"mount ext4 {mount}".rstrip()]
    files["script"] = ("\n".join([*first, *script]) + "\n").encode()
    (folder / "initramfs").write_bytes(_cpio(files))
    log, console = folder / "log", folder / "console"
    log.write_bytes(b"")
    nodes = [
        f"driver=file,filename={folder}/disk.img,node-name=file",
        f"driver=file,filename={log},node-name=log",
        "driver=blklogwrites,file=file,log=log,node-name=disk",
    ]
    run = subprocess.run(
        [
            *words,
            *(
                "-machine",
                "pc",
                "-accel",
                "tcg",
                "-smp",
                "2",
                "-m",
                "256",
                "-nodefaults",
                "-display",
                "none",
                "-no-reboot",
            ),
            *("-serial", f"file:{console}", "-kernel", str(next(packages.glob("boot/vmlinuz-*")))),
            *("-initrd", str(folder / "initramfs")),
            # A busy machine makes the kernel's test of its timer fail, and then it panics.
            *("-append", "console=ttyS0 quiet no_timer_check panic=-1"),
            *(word for node in nodes for word in ("-blockdev", node)),
            *("-device", "virtio-blk-pci,drive=disk,discard=off,write-zeroes=off"),
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    said = console.read_text(errors="replace") if console.exists() else ""
    if "guest: done" not in said:
        raise RuntimeError(f"QEMU ended with {run.returncode}: {run.stderr[-2000:]}\n{said[-2000:]}")
    return log


def version(packages: Path) -> str:
    return next(packages.glob("boot/vmlinuz-*")).name.removeprefix("vmlinuz-")


def _modules(packages: Path) -> Iterator[Path]:
    """The kernel's modules that the disk needs, each after those that it needs itself."""
    found = {path.stem: path for path in packages.glob("lib/modules/**/*.ko")}
    known = set[str]()

    def needed(name: str) -> Iterator[Path]:
        if name in known or name not in found:
            return  # built in
        known.add(name)
        depends = re.search(rb"\0depends=([^\0]*)\0", found[name].read_bytes())
        for other in depends[1].decode().split(",") if depends else ():
            yield from needed(other)
        yield found[name]

    for name in _MODULES:
        yield from needed(name)


def _cpio(files: dict[str, bytes]) -> bytes:
    """An archive in the format that the kernel unpacks (newc)."""
    out = bytearray()
    for number, (name, data) in enumerate([*files.items(), ("TRAILER!!!", b"")]):
        fields = [number, 0o100755, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08X" % value for value in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)


def _unpacked(name: str, download: list[str]) -> Path:
    root = real_programs.cache() / "packages" / name
    with real_programs.lock(name):
        if not root.exists():
            partial = root.with_name(f"{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            (partial / "root").mkdir(parents=True)
            real_programs.run(download, partial, f"fetching {name}")
            for package in sorted(partial.glob("*.deb")):
                real_programs.run(["dpkg-deb", "-x", str(package), "root"], partial, f"unpacking {package.name}")
            (partial / "root").rename(root)
            shutil.rmtree(partial)
    return root


def _output(words: list[str]) -> str:
    if shutil.which(words[0]) is None:
        raise Unavailable(f"{words[0]} is missing: the kernel comes from Debian's packages.")
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout


def _run(words: list[str]) -> None:
    real_programs.run(words, HERE, words[0])
