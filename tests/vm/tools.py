"""What building and booting images needs, installed from Debian where it is missing. Knows packages by the programs in them."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from provision import CannotBeHad, cache_dir, locked

INSTALL_LIMIT_S = 900
PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
PACKAGES = {
    "qemu-system-x86_64": ("qemu-system-x86", "ovmf"),
    "qemu-img": ("qemu-utils",),
    "debootstrap": ("debootstrap",),
    "grub-mkimage": ("grub-common", "grub-pc-bin", "grub-efi-amd64-bin"),
    "mcopy": ("mtools",),
    "mkfs.vfat": ("dosfstools",),
    "debugfs": ("e2fsprogs",),
    "ip": ("iproute2",),
}
# A machine whose qemu-utils is a backport cannot have the older emulator beside it.
BACKPORTS = "deb {mirror} {suite}-backports main\n"


def ensure() -> None:
    """All of them are there afterwards, or `CannotBeHad` says why not."""
    if os.geteuid() != 0:
        raise CannotBeHad("images are built by root only")
    if not (wanted := _missing()):
        return
    with locked(cache_dir() / "vm-tools.lock"):
        packages = [package for tool in wanted for package in PACKAGES[tool]]
        if _install(packages) or _install(packages, backports=True):
            wanted = _missing()
    if wanted:
        raise CannotBeHad(f"{', '.join(wanted)} not there, and could not be installed")


def _missing() -> list[str]:
    return [tool for tool in PACKAGES if shutil.which(tool, path=PLACES) is None]


def _install(packages: list[str], backports: bool = False) -> bool:
    if shutil.which("apt-get") is None:
        return False
    with tempfile.TemporaryDirectory() as scratch:
        options: list[str] = []
        if backports:
            options = _backports(Path(scratch))
        updated = _apt(*options, "update")
        return updated and _apt(*options, "install", "--yes", "--no-install-recommends", *packages)


def _backports(scratch: Path) -> list[str]:
    """Options that add the suite for this once, from the mirror that the machine uses."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = release.get("VERSION_CODENAME", "bookworm").strip('"')
    policy = subprocess.run(["apt-cache", "policy"], capture_output=True, text=True, check=False).stdout
    mirrors = [word for line in policy.splitlines() for word in line.split() if word.startswith("http")]
    parts = scratch / "sources"
    parts.mkdir()
    for place in Path("/etc/apt/sources.list.d").glob("*"):
        shutil.copy(place, parts)
    if mirrors:
        (parts / "backports.list").write_text(BACKPORTS.format(mirror=mirrors[0], suite=suite))
    return ["-o", f"Dir::Etc::sourceparts={parts}", "-t", f"{suite}-backports"]


def _apt(*words: str) -> bool:
    env = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "--quiet", *words], env=env, capture_output=True, timeout=INSTALL_LIMIT_S, check=False
    )
    return done.returncode == 0
