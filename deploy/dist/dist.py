#!/usr/bin/env python3
"""Makes everything that is published from programs that are already built. Needs Python 3.11, git, cargo (for the list of
crates), strip and nfpm; no network, no root, no container engine.

`dist.py --program target/release/trellis [--program PROGRAM_OF_ANOTHER_MACHINE] --nfpm FILE --out dist`

The same programs and tools give the same bytes: all files have the time of the commit (or SOURCE_DATE_EPOCH), and archives are
sorted. Steps: the program is stripped; archives, packages, wheels, images and the chart are made of it; then the bill of
materials, the provenance and the checksums of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path.insert(0, str(REPOSITORY / "python" / "sdk"))
sys.dont_write_bytecode = True

import archive  # noqa: E402
import bill  # noqa: E402
import build_wheel  # noqa: E402
import oci  # noqa: E402
import packages  # noqa: E402
import statement  # noqa: E402
import tomllib  # noqa: E402

CHECKSUMS = "SHA256SUMS"
CHART = REPOSITORY / "deploy" / "chart" / "trellis-operator"
IMAGES = REPOSITORY / "deploy" / "images"
ROLES = ("operator", "superlink", "supernode")
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
STATIC = "manylinux"
# Where shells look for completions below a prefix.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/trellis",
    "zsh": "share/zsh/site-functions/_trellis",
    "fish": "share/fish/vendor_completions.d/trellis.fish",
}


class Refused(Exception):
    """Nothing can be made of what was given."""


@dataclass(frozen=True)
class Release:
    """What all parts have in common."""

    version: str
    time: int
    # Static and stripped, by the machine they are for.
    programs: dict[str, Path]
    # The files of an installation, by machine, as they are below a prefix.
    roots: dict[str, Path]
    components: list[bill.Component]
    licences: bytes
    out: Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, action="append", required=True, help="static `trellis`, one for each machine")
    parser.add_argument(
        "--runs", type=Path, help="a `trellis` that runs here, for manual pages and completions; the first program"
    )
    parser.add_argument("--nfpm", default="nfpm", help="writes .deb and .rpm (tests/provision_kube.py nfpm)")
    parser.add_argument("--out", type=Path, required=True, help="the directory for all files; those of an earlier call go")
    parser.add_argument("--version", default=workspace_version(), help="another version, for tests of upgrades")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            make(given, Path(scratch))
    except (Refused, build_wheel.Unusable, LookupError, OSError, subprocess.CalledProcessError) as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


def workspace_version() -> str:
    return str(tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"])


def make(given: argparse.Namespace, scratch: Path) -> None:
    nfpm = shutil.which(given.nfpm)
    if nfpm is None:
        raise Refused(f"{given.nfpm} is no program: tests/provision_kube.py nfpm builds it")
    if not statement.is_clean(REPOSITORY):
        print("note: the checkout has changes that are in no commit; the provenance says so", file=sys.stderr)
    time = int(os.environ.get("SOURCE_DATE_EPOCH") or statement.git(REPOSITORY, "log", "-1", "--format=%ct"))
    programs = stripped(given.program, scratch)
    components = bill.components(REPOSITORY, [f"{machine}-unknown-linux-gnu" for machine in programs])
    licences = bill.licences(components)
    documents = write_documents(given.runs or given.program[0], licences, scratch / "documents")
    roots = {machine: installation(program, documents, scratch / "roots" / machine) for machine, program in programs.items()}
    out = scratch / "out"
    out.mkdir()
    release = Release(given.version, time, programs, roots, components, licences, out)
    for part in (archives, wheels, images, chart):
        part(release)
    for machine, root in roots.items():
        packages.build(nfpm, root, machine, release.version, time, out)
    describe(release, nfpm)
    publish(out, given.out)


def stripped(programs: list[Path], scratch: Path) -> dict[str, Path]:
    """The programs without symbols, by their machines."""
    found: dict[str, Path] = {}
    host = os.uname().machine
    for program in programs:
        tag = build_wheel.platform_tag(program.read_bytes())
        machine = next(machine for machine in build_wheel.MACHINES.values() if tag.endswith(machine))
        if not tag.startswith(STATIC):
            raise Refused(
                f"{program} is not static, so it would not start on other systems: build it with make release, with libc.a"
            )
        if machine in found:
            raise Refused(f"{program} is a second program for {machine}: give one for each machine")
        found[machine] = scratch / machine / "trellis"
        found[machine].parent.mkdir()
        tool = "strip" if machine == host else f"{machine}-linux-gnu-strip"
        if shutil.which(tool) is None:
            raise Refused(f"{tool} is missing, which strips {program}: install binutils for {machine}")
        subprocess.run([tool, "-o", str(found[machine]), str(program)], check=True)
        found[machine].chmod(0o755)
    return dict(sorted(found.items()))


def write_documents(program: Path, licences: bytes, root: Path) -> Path:
    """Manual pages, completions and licences, below a prefix."""
    pages = root / "share" / "man" / "man1"
    subprocess.run([str(program), "man", str(pages)], check=True)
    texts = {f"share/man/man1/{page.name}.gz": archive.compressed(page.read_bytes()) for page in pages.iterdir()}
    shutil.rmtree(pages)
    for shell, name in COMPLETIONS.items():
        texts[name] = subprocess.run([str(program), "completions", shell], stdout=subprocess.PIPE, check=True).stdout
    texts["share/doc/trellis/LICENSE"] = (REPOSITORY / "LICENSE").read_bytes()
    texts["share/doc/trellis/THIRD-PARTY-LICENSES"] = licences
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text)
    return root


def installation(program: Path, documents: Path, root: Path) -> Path:
    shutil.copytree(documents, root)
    (root / "bin").mkdir()
    shutil.copy2(program, root / "bin" / "trellis")
    # A plugin of kubectl is a program of this name.
    (root / "bin" / "kubectl-trellis").symlink_to("trellis")
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path == root / "bin" / "trellis" else 0o644)
    return root


def archives(release: Release) -> None:
    for machine, root in release.roots.items():
        stem = f"trellis-{release.version}-linux-{machine}"
        entries = [
            archive.Entry(f"{stem}/install.sh", 0o755, (HERE / "install.sh").read_bytes()),
            *archive.tree(root, f"{stem}/"),
        ]
        (release.out / f"{stem}.tar.gz").write_bytes(archive.compressed(archive.tar(entries, release.time)))


def wheels(release: Release) -> None:
    for program in release.programs.values():
        build_wheel.build(program, release.out, release.version, release.licences)
    build_wheel.build(None, release.out, release.version)


def images(release: Release) -> None:
    bundle = CA_BUNDLE if CA_BUNDLE.exists() else None
    for role in ROLES:
        content = oci.image(IMAGES / f"{role}.Dockerfile", release.programs, bundle, release.version, release.time)
        (release.out / f"trellis-{role}-{release.version}.oci.tar").write_bytes(content)


def chart(release: Release) -> None:
    """The chart as a file and as an artifact for registries."""
    text = (CHART / "Chart.yaml").read_text()
    text = text.replace(f"ersion: {workspace_version()}\n", f"ersion: {release.version}\n")
    # Definitions of resources are links: the archive has what they lead to.
    files = {path.relative_to(CHART.parent).as_posix(): path.read_bytes() for path in CHART.rglob("*") if path.is_file()}
    files[f"{CHART.name}/Chart.yaml"] = text.encode()
    entries = [archive.Entry(name, content=content) for name, content in files.items()]
    packed = archive.compressed(archive.tar(entries, release.time))
    (release.out / f"{CHART.name}-{release.version}.tgz").write_bytes(packed)
    artifact = oci.chart(packed, described(text), release.time)
    (release.out / f"{CHART.name}-chart-{release.version}.oci.tar").write_bytes(artifact)


def described(text: str) -> dict[str, Any]:
    """Chart.yaml: one `key: value` a line, with lists in brackets."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        key, _, value = line.partition(": ")
        found[key] = (
            value.strip("[]").split(", ") if value.startswith("[") else json.loads(value) if value.startswith('"') else value
        )
    return found


def describe(release: Release, nfpm: str) -> None:
    """The bill, the provenance of all files, and the checksums, also of these two."""
    stem = f"trellis-{release.version}"
    (release.out / f"{stem}.cdx.json").write_bytes(bill.cyclonedx(release.components, release.version))
    inputs = {"ca-certificates.crt": CA_BUNDLE} if CA_BUNDLE.exists() else {}
    content = statement.provenance(REPOSITORY, list(release.out.iterdir()), inputs, release.version, nfpm)
    (release.out / f"{stem}.intoto.json").write_bytes(content)
    (release.out / CHECKSUMS).write_bytes(statement.checksums(list(release.out.iterdir())))


def publish(made: Path, out: Path) -> None:
    """Takes the place of an earlier call's files, and of no others."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / CHECKSUMS).exists():
        for line in (out / CHECKSUMS).read_text().splitlines():
            (out / Path(line.split()[-1]).name).unlink(missing_ok=True)
    for path in sorted(made.iterdir()):
        shutil.copyfile(path, out / path.name)
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {statement.sha256(path)[:16]}  {path.name}")


if __name__ == "__main__":
    sys.exit(main())
