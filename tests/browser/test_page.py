"""The page in a real browser, against a real server with a federation of local nodes: each story is a script beside this.

Stories share the server and its federation, and leave it as it was. UPDATE_SCREENSHOTS=1 makes the pictures of the
documentation anew (docs/images).
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib import request

import pytest

from harness.npm import browser, packages
from harness.platform import Platform
from harness.waiting import wait_for
from harness.workspace import REPOSITORY, TESTS, Workspace, trellis_binary
from provision import CannotBeHad

pytestmark = [pytest.mark.trellis_only]

HERE = Path(__file__).resolve().parent
STORIES = sorted(path.stem for path in (HERE / "stories").glob("*.mjs"))
PICTURES = "pictures"
UPDATE = "UPDATE_SCREENSHOTS"
STORY_LIMIT_S = 600
READY_LIMIT_S = 120.0
FEDERATION = "clinics"
DOCUMENT = f"""apiVersion: trellis.dev/v1
kind: Federation
metadata:
  name: {FEDERATION}
spec:
  sites:
  - name: north
    local: {{}}
  - name: south
    local: {{}}
  pools:
  - name: wards
    site: north
    count: 3
  - name: imaging
    site: south
    count: 2
  training:
    strategy: FedAvg
    rounds: 10
"""


class Server:
    """The REST API as the stage needs it before a story begins."""

    def __init__(self, home: Path):
        self.url = json.loads((home / "server.json").read_text())["url"].rstrip("/")
        self.token = (home / "admin.token").read_text().strip()

    def call(self, method: str, route: str, body: bytes | None = None, media: str = "application/json") -> dict:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media}
        asked = request.Request(f"{self.url}/api/v1{route}", method=method, data=body, headers=headers)
        with request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def issue(self, role: str) -> str:
        return self.call("POST", "/tokens", json.dumps({"name": role, "role": role}).encode())["token"]

    def is_ready(self) -> bool:
        return self.call("GET", f"/federations/{FEDERATION}")["summary"]["state"] == "ready"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """A server with a federation that is ready, a token of each role, and a browser."""
    try:
        tools = {"packages": str(packages(HERE)), "chromium": browser()}
    except CannotBeHad as why:
        pytest.skip(f"the page cannot be tried in a browser here: {why}")
    workspace = Workspace(tmp_path_factory.mktemp("page"))
    platform = Platform(workspace)
    failing = workspace.copy_app(TESTS / "apps" / "numpy_fedavg")
    (failing / "numpy_fedavg" / "client.py").write_text("import nowhere\n")
    try:
        workspace.start("server", platform.argv("server", "--listen", "127.0.0.1:0"), platform.env())
        for file in ("server.json", "admin.token"):
            wait_for(f"the server's {file}", (platform.home / file).exists, READY_LIMIT_S)
        server = Server(platform.home)
        server.call("PUT", f"/federations/{FEDERATION}", DOCUMENT.encode(), "application/yaml")
        wait_for("the federation to be ready", server.is_ready, READY_LIMIT_S)
        roles = {role: server.issue(role) for role in ("viewer", "runner")}
        yield tools | {
            "url": server.url,
            "tokens": roles | {"admin": server.token},
            "federation": FEDERATION,
            "home": str(platform.home),
            "pictures": str(REPOSITORY / "docs" / "images"),
            "broken": str(workspace.logs),
            "trellis": str(trellis_binary()),
            "failing": str(failing),
        }
    finally:
        workspace.close()


@pytest.mark.parametrize("story", STORIES)
def test_story(stage, story):
    if story == PICTURES and not os.environ.get(UPDATE):
        pytest.skip(f"pictures are made only with {UPDATE}=1")
    env = os.environ | {"TRELLIS_STAGE": json.dumps(stage)}
    script = HERE / "stories" / f"{story}.mjs"
    done = subprocess.run(
        ["node", str(script)], env=env, capture_output=True, text=True, timeout=STORY_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
