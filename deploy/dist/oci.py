"""OCI archives without a container engine: images from the last stage of our Dockerfiles, and the chart as an artifact.

An archive is an image layout in a tar. It is one multi-arch index, so that one file serves every machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import archive

MEDIA = "application/vnd.oci.image"
LAYER, CONFIG = f"{MEDIA}.layer.v1.tar+gzip", f"{MEDIA}.config.v1+json"
MANIFEST, INDEX = f"{MEDIA}.manifest.v1+json", f"{MEDIA}.index.v1+json"
CHART_LAYER, CHART_CONFIG = "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/vnd.cncf.helm.config.v1+json"
TITLE, VERSION, NAME = (f"org.opencontainers.image.{each}" for each in ("title", "version", "ref.name"))
# The names of OCI, and of packages, for the machines of Rust.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# `COPY --from=build --chown=65532:65532 /tree/state/ /var/lib/`
COPY = re.compile(r"--from=build (?:--chown=(\d+):\d+ )?/tree/(\w+)/ /(\S*)")

Descriptor = dict[str, Any]


class Layout:
    """An image layout, in memory."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def add(self, content: bytes, media_type: str) -> Descriptor:
        digest = hashlib.sha256(content).hexdigest()
        self._blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, value: dict[str, Any], media_type: str) -> Descriptor:
        return self.add(json.dumps(value, sort_keys=True).encode(), media_type)

    def add_manifest(self, config: Descriptor, layer: Descriptor, **more: Any) -> Descriptor:
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], **more}
        return self.add_json(manifest, MANIFEST)

    def archive(self, root: Descriptor, name: str, time: int) -> bytes:
        """The tar of the layout, which has one object under a name."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [root | {"annotations": {NAME: name}}]}
        files = {"index.json": json.dumps(index).encode(), "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
        files |= {f"blobs/sha256/{digest}": content for digest, content in self._blobs.items()}
        directories = [archive.Entry(name, 0o755) for name in ("blobs", "blobs/sha256")]
        return archive.tar([*directories, *(archive.Entry(name, content=files[name]) for name in files)], time)


def image(dockerfile: Path, programs: dict[str, Path], bundle: Path | None, version: str, time: int) -> bytes:
    """The archive of an image FROM scratch for the programs of all machines."""
    title = f"trellis-{dockerfile.stem}"
    layout, manifests = Layout(), []
    for machine, program in programs.items():
        config, copies = last_stage(dockerfile.read_text())
        config["Labels"] = {TITLE: title, VERSION: version}
        packed = archive.tar(files(dockerfile.parent / "tree.sh", program, bundle, copies), time)
        layer = layout.add(archive.compressed(packed), LAYER)
        platform = {"architecture": MACHINES[machine], "os": "linux"}
        content = {
            **platform,
            "created": datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(packed).hexdigest()}"]},
        }
        manifest = layout.add_manifest(layout.add_json(content, CONFIG), layer)
        manifests.append(manifest | {"platform": platform})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return layout.archive(layout.add_json(index, INDEX), f"{title}:{version}", time)


def last_stage(text: str) -> tuple[dict[str, Any], list[tuple[int, str, str]]]:
    """The configuration of the image, and its copies: owner, part of the tree, and target."""
    config: dict[str, Any] = {}
    copies = []
    for line in text.partition("\nFROM scratch\n")[2].splitlines():
        word, _, rest = line.partition(" ")
        if word == "COPY" and (found := COPY.fullmatch(rest)):
            copies.append((int(found[1] or 0), found[2], found[3]))
        elif word == "ENV":
            config.setdefault("Env", []).extend(shlex.split(rest))
        elif word == "ENTRYPOINT":
            config["Entrypoint"] = json.loads(rest)
        elif word == "VOLUME":
            config["Volumes"] = {rest: {}}
        elif word in ("WORKDIR", "USER"):
            config[{"WORKDIR": "WorkingDir", "USER": "User"}[word]] = rest
        elif line and word != "#":
            raise ValueError(f"the last stage has an instruction that oci.py does not know: {line}")
    return config, copies


def files(script: Path, program: Path, bundle: Path | None, copies: list[tuple[int, str, str]]) -> list[archive.Entry]:
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([str(script), str(program), scratch, str(bundle or "")], check=True)
        found = [archive.tree(Path(scratch) / part, target, owner) for owner, part, target in copies]
    return [entry for entries in found for entry in entries]


def chart(packed: bytes, description: dict[str, Any], time: int) -> bytes:
    """The archive of a packed chart, as `helm push` would make it in a registry."""
    layout = Layout()
    layer, config = layout.add(packed, CHART_LAYER), layout.add_json(description, CHART_CONFIG)
    notes = {TITLE: description["name"], VERSION: description["version"]}
    name = f"{description['name']}:{description['version']}"
    return layout.archive(layout.add_manifest(config, layer, annotations=notes), name, time)
