"""Builds the wheel: this package and the program `trellis`, which pip puts on PATH. Two builds of the same files are equal.

`build_wheel.py --program target/release/trellis --out dist` prints the path of the wheel. Without `--program` the wheel is for
machines that no program is built for: pip takes it where no other fits.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any, Optional

import tomllib

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# The first that a zip can hold.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)
FILE_MODE, PROGRAM_MODE = 0o100644, 0o100755
UNIX = 3
MACHINES = {62: "x86_64", 183: "aarch64"}
# An ELF program header of this type names the dynamic linker.
PT_INTERP = 3
NO_PROGRAM = """\
#!python
import platform, sys
sys.exit(
    f"trellis: there is no program for {platform.system()} {platform.machine()} in this package: run trellis on Linux (x86_64), "
    "in a container or on another machine, and name its address in TRELLIS_SERVER; `import trellis` works here, as its client"
)
"""


class Unusable(Exception):
    """No wheel can be made of what there is."""


def platform_tag(program: bytes) -> str:
    """A static program runs on every Linux of its machine, also with musl; one that needs libraries, perhaps only on this one."""
    if program[:6] != b"\x7fELF\x02\x01":
        raise Unusable("the program is no 64-bit program for Linux")
    (machine,) = struct.unpack_from("<H", program, 18)
    if machine not in MACHINES:
        raise Unusable(f"the program is for a machine that no wheel is made for (ELF number {machine})")
    (offset,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = [struct.unpack_from("<I", program, offset + size * each)[0] for each in range(count)]
    systems = ["linux"] if PT_INTERP in kinds else ["manylinux_2_17", "musllinux_1_1"]
    return ".".join(f"{system}_{MACHINES[machine]}" for system in systems)


def metadata(project: dict[str, Any], has_others: bool) -> str:
    """Core metadata 2.4, from pyproject.toml."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Keywords: {','.join(project['keywords'])}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        *(["License-File: THIRD-PARTY"] if has_others else []),
        *(f"Classifier: {each}" for each in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
    ]
    for extra, packages in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {package}; extra == "{extra}"' for package in packages]
    lines.append("Description-Content-Type: text/markdown")
    readme = HERE / str(project["readme"])
    return "\n".join(lines) + "\n\n" + readme.read_text()


def contents(project: dict[str, Any], program: bytes, tag: str, licences: bytes) -> dict[str, tuple[bytes, int]]:
    """Every file of the wheel but RECORD, by its name: bytes and mode."""
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    info = f"{stem}.dist-info"
    package = HERE / "src"
    files = {
        path.relative_to(package).as_posix(): (path.read_bytes(), FILE_MODE)
        for path in package.rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    pure = str(tag == "any").lower()
    tags = "".join(f"Tag: py3-none-{each}\n" for each in tag.split("."))
    wheel = f"Wheel-Version: 1.0\nGenerator: trellis\nRoot-Is-Purelib: {pure}\n{tags}"
    files[f"{stem}.data/scripts/trellis"] = (program, PROGRAM_MODE)
    files[f"{info}/METADATA"] = (metadata(project, bool(licences)).encode(), FILE_MODE)
    files[f"{info}/WHEEL"] = (wheel.encode(), FILE_MODE)
    files[f"{info}/licenses/LICENSE"] = ((REPOSITORY / "LICENSE").read_bytes(), FILE_MODE)
    if licences:
        files[f"{info}/licenses/THIRD-PARTY"] = (licences, FILE_MODE)
    return files


def record(files: dict[str, tuple[bytes, int]], name: str) -> bytes:
    """Digest and size of each file."""
    lines = []
    for path, (content, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{name},,"]).encode() + b"\n"


def build(program: Optional[Path], out: Path, version: str = "", licences: bytes = b"") -> Path:
    """Writes the wheel into a directory. A version other than that of the sources is for tests of upgrades."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    if project["version"] != workspace:
        raise Unusable(f"pyproject.toml has version {project['version']}, and Cargo.toml {workspace}")
    project["version"] = version or project["version"]
    content = program.read_bytes() if program else NO_PROGRAM.encode()
    tag = platform_tag(content) if program else "any"
    if tag.startswith("linux"):
        print(f"note: {program} needs the libraries of this machine; the wheel is for this machine only", file=sys.stderr)
    files = contents(project, content, tag, licences)
    [info] = {path.partition("/")[0] for path in files if re.match(r"[^/]+\.dist-info/", path)}
    files[f"{info}/RECORD"] = (record(files, f"{info}/RECORD"), FILE_MODE)
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{info.removesuffix('.dist-info')}-py3-none-{tag}.whl"
    partial = wheel.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # What describes the wheel comes last, as its specification recommends.
        for path in sorted(files, key=lambda path: (path.startswith(info), path)):
            entry = zipfile.ZipInfo(path, TIMESTAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = UNIX
            entry.external_attr = files[path][1] << 16
            archive.writestr(entry, files[path][0], compresslevel=9)
    partial.replace(wheel)
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, help="the program `trellis`, as `make release` builds it")
    parser.add_argument("--out", type=Path, required=True, help="the directory for the wheel")
    arguments = parser.parse_args()
    try:
        print(build(arguments.program, arguments.out))
    except (Unusable, OSError) as error:
        print(f"build_wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
