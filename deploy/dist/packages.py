"""Packages of distributions, written by nfpm: the program, its units, settings in /etc/trellis, and a system user."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import oci

HERE = Path(__file__).resolve().parent
SYSTEMD = HERE.parent / "systemd"
SCRIPTS = {name: str(HERE / "scripts" / f"{name}.sh") for name in ("postinstall", "preremove", "postremove")}
KINDS = ("deb", "rpm")
# Directories of every system. The others belong to the package, as rpm removes no others.
USUAL = {"bin", "share", "share/doc", "share/man", "share/man/man1"}


def build(nfpm: str, root: Path, machine: str, version: str, time: int, out: Path) -> None:
    """Writes the packages of all kinds; `root` is what they have in /usr."""
    config = out.parent / f"nfpm-{machine}.json"
    config.write_text(json.dumps(configuration(root, machine, version, time)))
    env = os.environ | {"SOURCE_DATE_EPOCH": str(time)}
    for kind in KINDS:
        argv = [nfpm, "package", "--config", str(config), "--packager", kind, "--target", str(out)]
        subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, check=True)


def configuration(root: Path, machine: str, version: str, time: int) -> dict[str, Any]:
    files = [(path, f"/usr/{path.relative_to(root)}") for path in sorted(root.rglob("*")) if not path.is_dir()]
    files += [(path, f"/usr/lib/systemd/system/{path.name}") for path in sorted(SYSTEMD.glob("*.service"))]
    contents = [entry(path, target) for path, target in files]
    own = sorted({path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()} - USUAL)
    contents += [{"dst": directory, "type": "dir"} for directory in ["/etc/trellis", *(f"/usr/{name}" for name in own)]]
    contents += [
        entry(path, f"/etc/trellis/{path.name}") | {"type": "config|noreplace"} for path in sorted((HERE / "etc").iterdir())
    ]
    return {
        "name": "trellis",
        "arch": oci.MACHINES[machine],
        "version": version,
        "release": "1",
        "section": "science",
        "maintainer": "The Trellis authors <trellis@localhost>",
        "description": "Runs Flower federations anywhere, from one description",
        "license": "Apache-2.0",
        "mtime": datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "contents": contents,
        "scripts": SCRIPTS,
        "rpm": {"buildhost": "trellis"},
        "overrides": {"deb": {"depends": ["passwd"]}, "rpm": {"depends": ["/usr/sbin/useradd"]}},
    }


def entry(path: Path, target: str) -> dict[str, Any]:
    """A file as it is, or a link. Modes do not depend on the umask of the checkout."""
    if path.is_symlink():
        return {"src": str(path.readlink()), "dst": target, "type": "symlink"}
    mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    return {"src": str(path), "dst": target, "file_info": {"mode": mode}}
