"""A federation in containers of a real podman, from its document: it becomes ready, trains, and leaves nothing behind."""

from pathlib import Path

import pytest
from harness.platform import Platform
from harness.podman import Podman, podman
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad

NODES = 2
READY_LIMIT_S = 300.0
RUN_LIMIT_S = 300.0
DOCUMENT = """\
apiVersion: trellis.dev/v1
kind: Federation
metadata: {name: contained}
spec:
  sites:
  - name: here
    local: {containers: podman}
  pools:
  - name: site
    count: 2
    clientApp: native:mlp
    image: localhost/trellis:tested
    resources: {memory: 512Mi}
  coordinator: {image: "localhost/trellis:tested"}
"""


@pytest.fixture
def engine(tmp_path: Path):
    try:
        ready = podman(tmp_path / "podman")
    except CannotBeHad as why:
        pytest.skip(f"podman cannot be had here: {why}")
    ready.load_program(trellis_binary(), "localhost/trellis:tested")
    yield ready
    ready.close()


@pytest.mark.trellis_only
def test_a_federation_in_containers(tmp_path: Path, engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path / "work")
    monkeypatch.setenv("PATH", engine.path)
    platform = Platform(workspace)
    document = workspace.root / "federation.yaml"
    document.write_text(DOCUMENT)
    try:
        platform.run("apply", "-f", str(document), limit_s=READY_LIMIT_S)
        platform.wait_ready("contained", READY_LIMIT_S)
        assert len(engine.containers()) == NODES + 1
        words = ("run", "native:mlp", "--federation", "contained", "--rounds", "2")
        platform.run(*words, limit_s=RUN_LIMIT_S)
        platform.run("delete", "contained", limit_s=READY_LIMIT_S)
        assert engine.containers() == []
    finally:
        workspace.close()
