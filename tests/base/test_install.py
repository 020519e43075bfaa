"""A wheel and a source distribution hold all that a run needs: code through the links, C sources, templates, schema."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

WINGS = ("analyzer", "runtime", "checker", "reports")
BUILD = "import sys; from setuptools import build_meta as b; print(b.build_{kind}(sys.argv[1]))"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with nothing built in it, links kept as links."""
    folder = tmp_path_factory.mktemp("checkout mit Leerzeichen")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("src", *WINGS):
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=unwanted)
    return folder


def build(kind: str, checkout: Path, target: Path) -> Path:
    command = [sys.executable, "-c", BUILD.format(kind=kind), str(target)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", checkout, tmp_path_factory.mktemp("wheel"))


def wanted(root: Path) -> list[str]:
    """What of the wings is no compiled leftover, by its name in the package."""
    return sorted(
        f"crashcheck/{path.relative_to(root).as_posix()}"
        for wing in WINGS
        for path in (root / wing).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def test_a_wheel_holds_every_file_of_the_wings(checkout: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        scripts = next(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert [name for name in wanted(checkout) if name not in names] == []
    assert {"crashcheck/config/settings.py", "crashcheck/cli/init.py", "crashcheck/py.typed"} <= names
    assert "crashcheck/testing/plugin.py" in names
    points = configparser.ConfigParser()
    points.read_string(scripts)
    assert set(points["console_scripts"]) == {"crashcheck", "crashcheck-cc", "crashcheck-c++"}
    assert dict(points["pytest11"]) == {"crashcheck": "crashcheck.testing.plugin"}


def test_a_wheel_built_from_the_source_distribution_is_the_same(checkout: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", checkout, tmp_path)) as archive:
        # Python 3.11.2, as Debian 12 has it, knows no filters; later versions want one.
        options: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **options)
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    with zipfile.ZipFile(build("wheel", unpacked, tmp_path)) as wheel:
        names = set(wheel.namelist())
    assert [name for name in wanted(checkout) if name not in names] == []


def test_an_installed_wheel_is_imported_from_its_place(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import crashcheck.analyzer, crashcheck.cli, importlib.resources as r; print(crashcheck.analyzer.__file__); "
        + ("print((r.files('crashcheck.runtime') / 'include' / 'trace_format.h').is_file())")
    )
    # -I: neither PYTHONPATH nor the current folder leads to the checkout.
    program = f"import sys; sys.path.insert(0, {str(site)!r}); {code}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(site / "crashcheck" / "analyzer" / "__init__.py"), "True"]


def test_a_checkout_in_a_folder_with_an_umlaut_is_imported_under_the_locale_c(checkout: Path, tmp_path: Path) -> None:
    home = tmp_path / "Prüfling mit Leerzeichen"
    site = home / "lib" / "site-packages"
    site.mkdir(parents=True)
    shutil.copytree(checkout, home / "checkout", symlinks=True)
    (site / "__editable__.crashcheck-1.pth").write_text(f"{home / 'checkout' / 'src'}\n", encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / ".ci" / "relative_path.py"), str(site)], check=True)
    assert (site / "__editable__.crashcheck-1.pth").read_bytes() == b"../../checkout/src\n"
    code = f"import site; site.addsitedir({str(site)!r}); "
    code += "import crashcheck.analyzer.compile.driver.wrapper as w; print(w.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], env={"LC_ALL": "C"}, capture_output=True, text=True, check=True
    )
    driver = home / "checkout" / "src" / "crashcheck" / "analyzer" / "compile" / "driver"
    assert done.stdout == f"{driver / 'wrapper.py'}\n"
