"""What is in an object, a library or a program, read without binutils, which a machine need not have."""

from __future__ import annotations

from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile


def sections(path: Path | str) -> dict[str, tuple[int, int]]:
    """Where each section is in the file: offset and size."""
    with open(path, "rb") as file:
        return {each.name: (each["sh_offset"], each["sh_size"]) for each in ELFFile(file).iter_sections()}


def defined(path: Path | str, table: str = ".dynsym") -> set[str]:
    """The symbols that a file defines: those for others, or all of them with `.symtab`. Names are without versions."""
    with open(path, "rb") as file:
        found = ELFFile(file).get_section_by_name(table)
        return {
            each.name.partition("@")[0]
            for each in found.iter_symbols()
            if each["st_shndx"] != "SHN_UNDEF" and each["st_info"]["type"] not in ("STT_SECTION", "STT_FILE")
        } - {""}


def needed(path: Path | str) -> set[str]:
    """The symbols that an object leaves to others."""
    with open(path, "rb") as file:
        found = ELFFile(file).get_section_by_name(".symtab")
        return {each.name for each in found.iter_symbols() if each["st_shndx"] == "SHN_UNDEF"} - {""}


def offered(path: Path | str) -> set[str]:
    """The symbols that an object defines for others."""
    with open(path, "rb") as file:
        found = ELFFile(file).get_section_by_name(".symtab")
        return {
            each.name
            for each in found.iter_symbols()
            if each["st_shndx"] != "SHN_UNDEF" and each["st_info"]["bind"] != "STB_LOCAL"
        }


def searched(path: Path | str) -> list[str]:
    """The folders in which a file's libraries are looked for first."""
    with open(path, "rb") as file:
        dynamic = next(each for each in ELFFile(file).iter_sections() if isinstance(each, DynamicSection))
        return [tag.runpath for tag in dynamic.iter_tags("DT_RUNPATH")] + [
            tag.rpath for tag in dynamic.iter_tags("DT_RPATH")
        ]
