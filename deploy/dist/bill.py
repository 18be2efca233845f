"""What the program is made of: the bill of materials (CycloneDX) and the licences of all components.

Components are the crates that are linked into the program, the packages of the page, and the libraries of compiler and
system. What is only needed to build or to test is left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

LICENCE_FILE = re.compile(r"(?i)(licen[sc]e|copying|copyright|notice|unlicense)")
SPECIFICATION = "1.6"
# The schema knows the old name of an alternative as no expression.
OLD_ALTERNATIVE = re.compile(r"\s*/\s*")
RULE = "=" * 80


@dataclass(frozen=True)
class Component:
    name: str
    version: str
    purl: str
    licence: str
    # The text of its licences, or why there is none.
    text: str
    checksum: str = ""
    depends_on: tuple[str, ...] = ()


def components(repository: Path, targets: Iterable[str]) -> list[Component]:
    """Of the program for these targets, sorted; the first is the program itself."""
    found: dict[str, Component] = {}
    for target in targets:
        found |= crates(repository, target)
    program = found.pop(next(purl for purl in found if purl.startswith("pkg:cargo/trellis@")))
    rest = [*found.values(), *page(repository), rust(), libc()]
    return [program, *sorted(rest, key=lambda component: component.purl)]


def crates(repository: Path, target: str) -> dict[str, Component]:
    argv = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(argv, cwd=repository, stdout=subprocess.PIPE, check=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    lock = tomllib.loads((repository / "Cargo.lock").read_text())["package"]
    checksums = {(each["name"], each["version"]): each.get("checksum", "") for each in lock}
    linked: dict[str, list[str]] = {}
    waiting = [identity for identity, package in packages.items() if package["name"] == "trellis"]
    while waiting:
        identity = waiting.pop()
        if identity not in linked:
            edges = nodes[identity]["deps"]
            linked[identity] = [edge["pkg"] for edge in edges if any(kind["kind"] is None for kind in edge["dep_kinds"])]
            waiting += linked[identity]
    return {
        purl(packages[identity]): Component(
            packages[identity]["name"],
            packages[identity]["version"],
            purl(packages[identity]),
            OLD_ALTERNATIVE.sub(" OR ", packages[identity]["license"]),
            crate_text(packages[identity]),
            checksums[packages[identity]["name"], packages[identity]["version"]],
            tuple(sorted(purl(packages[needed]) for needed in needs)),
        )
        for identity, needs in linked.items()
    }


def purl(package: dict[str, Any]) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def crate_text(package: dict[str, Any]) -> str:
    """The licence files of a crate; authors and the standard text for those that leave theirs in their repository."""
    if package["source"] is None:
        return "the licence of Trellis itself\n"
    directory = Path(package["manifest_path"]).parent
    texts = [path.read_text(errors="replace") for path in sorted(directory.iterdir()) if is_licence(path)]
    if texts:
        return "\n".join(texts)
    return standard_text(package["name"], package["license"], ", ".join(package["authors"]))


def standard_text(name: str, licence: str, authors: str = "") -> str:
    names = [word for word in re.split(r"[ /()]+", licence) if word not in ("", "OR", "AND", "WITH")]
    texts = [path.read_text() for path in (rust_licences() / f"{word}.txt" for word in names) if path.exists()]
    if not texts:
        raise LookupError(f"{name} has no licence file, and there is no standard text of {licence}")
    return "\n".join([f"Copyright (c) {authors or f'the authors of {name}'}\n", *texts])


def is_licence(path: Path) -> bool:
    return path.is_file() and LICENCE_FILE.match(path.name) is not None


def page(repository: Path) -> list[Component]:
    """The packages that can be in web/dist, which is checked in without their files."""
    locked = json.loads((repository / "web" / "package-lock.json").read_text())["packages"]
    return [
        Component(
            name := path.rpartition("node_modules/")[2],
            package["version"],
            f"pkg:npm/{name.replace('@', '%40')}@{package['version']}",
            package["license"],
            standard_text(name, package["license"]),
        )
        for path, package in locked.items()
        if path and not package.get("dev")
    ]


def rust_licences() -> Path:
    root = subprocess.run(["rustc", "--print", "sysroot"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return Path(root) / "share" / "doc" / "rust" / "licenses"


def rust() -> Component:
    """The standard library, which is part of each program in Rust."""
    version = subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[1]
    texts = [(rust_licences() / f"{name}.txt").read_text() for name in ("Apache-2.0", "MIT")]
    return Component("rust-std", version, f"pkg:generic/rust-std@{version}", "MIT OR Apache-2.0", "\n".join(texts))


def libc() -> Component:
    """The C library, which is part of a static program."""
    told = subprocess.run(["ldd", "--version"], capture_output=True, text=True, check=False).stdout
    version = found[0] if (found := re.findall(r"\d+\.\d+", told)) else "unknown"
    ours = Path("/usr/share/doc/libc6/copyright")
    text = ours.read_text(errors="replace") if ours.exists() else "https://www.gnu.org/licenses/lgpl-2.1.html\n"
    note = "Linked statically. The sources of Trellis are public, so that it can be linked with another version.\n\n"
    return Component("glibc", version, f"pkg:generic/glibc@{version}", "LGPL-2.1-or-later", note + text)


def cyclonedx(found: list[Component], version: str) -> bytes:
    """The bill, as JSON. Its number follows from its content, as everything here."""
    program, *others = found
    program = Component(program.name, version, f"pkg:cargo/trellis@{version}", program.licence, "", "", program.depends_on)
    bill = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {"component": entry(program, "application")},
        "components": [entry(component, "library") for component in others],
        "dependencies": [
            {"ref": each.purl, "dependsOn": list(each.depends_on)} for each in [program, *others] if each.depends_on
        ],
    }
    content = json.dumps(bill, sort_keys=True)
    return (json.dumps(bill | {"serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, content).urn}, indent=1) + "\n").encode()


def entry(component: Component, kind: str) -> dict[str, Any]:
    hashes = {"hashes": [{"alg": "SHA-256", "content": component.checksum}]} if component.checksum else {}
    return {
        "type": kind,
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
        "licenses": [{"expression": component.licence}],
        **hashes,
    }


def licences(found: list[Component]) -> bytes:
    """Each text once, below the components it is for."""
    by_text: dict[str, list[Component]] = {}
    for component in found:
        if not component.purl.startswith("pkg:cargo/trellis"):
            by_text.setdefault(component.text.strip(), []).append(component)
    parts = []
    for text, theirs in by_text.items():
        names = "\n".join(f"{component.name} {component.version}: {component.licence}" for component in theirs)
        parts.append(f"{RULE}\n{names}\n{RULE}\n{text}\n")
    return "\n".join(parts).encode()
