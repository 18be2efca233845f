"""Provenance: an in-toto statement (SLSA 1.0) that ties the digest of each file to the commit, the command and the tools.

It has no time and no name of a machine: the same commit and the same tools give the same statement. It is not signed here; the
release workflow signs it with the identity of the forge.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

BUILD_TYPE = "https://trellis.dev/dist/v1"
LOCAL_BUILDER = "https://trellis.dev/dist/local"
# The first line of each says its version.
TOOLS = (["rustc", "--version"], ["cargo", "--version"], ["cc", "--version"], ["strip", "--version"], ["python3", "--version"])
SOURCES = ("Cargo.lock", "web/package-lock.json", "rust-toolchain.toml")


def sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repository, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def is_clean(repository: Path) -> bool:
    return git(repository, "status", "--porcelain") == ""


def provenance(repository: Path, files: list[Path], inputs: dict[str, Path], version: str, nfpm: str) -> bytes:
    """`inputs` are files that are not in the repository."""
    commit = {"uri": f"git+{source()}", "digest": {"gitCommit": git(repository, "rev-parse", "HEAD")}}
    found = {name: repository / name for name in SOURCES} | inputs
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"command": "make dist", "version": version},
                # Changes that are in no commit make the statement worthless: they are named here.
                "internalParameters": {"clean": is_clean(repository), "tools": tools(nfpm)},
                "resolvedDependencies": [
                    commit,
                    *({"uri": name, "digest": {"sha256": sha256(path)}} for name, path in found.items()),
                ],
            },
            "runDetails": {"builder": {"id": os.environ.get("BUILDER_ID", LOCAL_BUILDER)}, "metadata": {}},
        },
    }
    return (json.dumps(statement, indent=1, sort_keys=True) + "\n").encode()


def source() -> str:
    """Where the repository is public, as the release workflow says."""
    return os.environ.get("SOURCE_URL", "https://trellis.dev/source")


def tools(nfpm: str) -> dict[str, str]:
    def version(argv: list[str]) -> str:
        return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[0].strip()

    found: dict[str, Any] = {argv[0]: version(argv) for argv in TOOLS}
    found["nfpm"] = hashlib.sha256(Path(nfpm).read_bytes()).hexdigest()
    return found


def checksums(files: list[Path]) -> bytes:
    """For `sha256sum --check`."""
    return "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(files)).encode()
