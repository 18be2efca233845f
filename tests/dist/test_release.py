"""The files as a whole: checksums, provenance, bill of materials, licences; two calls are equal; refused programs."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from dist.conftest import Release, make
from harness.environment import environment
from harness.workspace import REPOSITORY, trellis_binary
from provision import CannotBeHad

pytestmark = pytest.mark.trellis_only

VALIDATOR = "cyclonedx-python-lib[json-validation]==11.12.0"
VALIDATE = """
import pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path(sys.argv[1]).read_text())
sys.exit(None if error is None else str(error))
"""
BUILD_LIMIT_S = 3600.0
BESIDE = {"SHA256SUMS"}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_file_is_in_the_checksums_and_the_provenance(release: Release):
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=release.directory, check=True)
    listed = {line.split()[1] for line in (release.directory / "SHA256SUMS").read_text().splitlines()}
    assert listed | BESIDE == release.names()
    statement = json.loads(release.one("*.intoto.json").read_text())
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert subjects == {name: sha256(release.directory / name) for name in listed if not name.endswith(".intoto.json")}
    assert (statement["_type"], statement["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    build = statement["predicate"]["buildDefinition"]
    commit = next(each["digest"]["gitCommit"] for each in build["resolvedDependencies"] if "gitCommit" in each["digest"])
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    assert commit == head, "dist/ is of another commit: make dist"
    assert build["internalParameters"]["tools"]["rustc"].startswith("rustc 1.")


def test_the_bill_of_materials_is_valid_and_whole(release: Release):
    bill = release.one("*.cdx.json")
    try:
        python = environment("cyclonedx", VALIDATOR) / "python"
    except CannotBeHad as why:
        pytest.skip(f"no validator: {why}")
    done = subprocess.run([str(python), "-c", VALIDATE, str(bill)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = json.loads(bill.read_text())
    names = {component["name"] for component in content["components"]}
    assert {"tokio", "rustls", "libsqlite3-sys", "svelte", "rust-std", "glibc"} <= names
    assert not {"proptest", "trellis-fake-one", "vite"} & names, "what only tests and builds need is in no program"
    known = {component["bom-ref"] for component in [content["metadata"]["component"], *content["components"]]}
    assert {ref for edge in content["dependencies"] for ref in [edge["ref"], *edge["dependsOn"]]} <= known


def test_licences_of_all_components_are_in_the_archive(release: Release):
    with tarfile.open(release.one("*-linux-x86_64.tar.gz")) as archive:
        [name] = [name for name in archive.getnames() if name.endswith("/THIRD-PARTY-LICENSES")]
        text = archive.extractfile(name).read().decode()
        owners = {(member.uid, member.gid, member.mtime) for member in archive.getmembers()}
    assert len(owners) == 1 and next(iter(owners))[:2] == (0, 0)
    for component in json.loads(release.one("*.cdx.json").read_text())["components"]:
        ours = component["purl"].startswith("pkg:cargo/trellis")
        assert ours or f"{component['name']} {component['version']}: " in text


def program_of(archive: Path, place: Path) -> Path:
    """As it is in an archive, without its symbols."""
    with tarfile.open(archive) as content:
        [name] = [name for name in content.getnames() if name.endswith("/bin/trellis")]
        target = place / name.partition("/")[0]
        target.write_bytes(content.extractfile(name).read())
    return target


def test_two_calls_are_equal(release: Release, tmp_path):
    """At another time, in another place, with another umask and time zone; and over the files of another version."""
    programs = tuple(program_of(archive, tmp_path) for archive in release.directory.glob("*-linux-*.tar.gz"))
    shutil.copytree(release.directory, tmp_path / "dist")
    (tmp_path / "dist" / "notes").write_text("of somebody else")
    old = os.umask(0o077)
    try:
        assert make(tmp_path / "dist", "--version", "0.0.1", TZ="Asia/Tokyo").returncode == 0
        done = make(tmp_path / "dist", "--runs", str(trellis_binary()), programs=programs, TZ="America/New_York")
        assert done.returncode == 0, done.stderr
    finally:
        os.umask(old)
    again = {path.name: sha256(path) for path in (tmp_path / "dist").iterdir() if path.name != "notes"}
    assert again == {path.name: sha256(path) for path in release.directory.iterdir()}
    assert (tmp_path / "dist" / "notes").exists()


def test_what_no_release_can_be_made_of_is_refused(tmp_path):
    dynamic = shutil.which("true")
    assert "is not static" in make(tmp_path / "a", programs=(Path(dynamic),)).stderr
    twice = make(tmp_path / "b", programs=(trellis_binary(), trellis_binary())).stderr
    assert "is a second program for x86_64" in twice
    text = tmp_path / "trellis"
    text.write_text("#!/bin/sh\n")
    assert "no 64-bit program for Linux" in make(tmp_path / "c", programs=(text,)).stderr
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "nothing is left of what failed"


def test_a_rebuild_in_another_directory_is_equal(release: Release, tmp_path):
    """The whole program from the commit, elsewhere, without what cargo kept. It takes as long as `make release`."""
    source = tmp_path / "elsewhere"
    source.mkdir()
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=packed, check=True)
    env = os.environ | {"CARGO_TARGET_DIR": str(tmp_path / "target")}
    argv = ["make", "--directory", str(source), "release"]
    subprocess.run(argv, env=env, capture_output=True, timeout=BUILD_LIMIT_S, check=True)
    program = tmp_path / "trellis"
    subprocess.run(["strip", "-o", str(program), str(tmp_path / "target" / "release" / "trellis")], check=True)
    assert sha256(program_of(release.one("*-linux-x86_64.tar.gz"), tmp_path)) == sha256(program)
