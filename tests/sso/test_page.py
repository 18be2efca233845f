"""The page in Chromium: login at a real identity provider, refusal, sign out, a session that ends."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.dex import PASSWORD
from harness.npm import browser, packages
from harness.sign_on import Server
from harness.workspace import TESTS, Workspace
from provision import CannotBeHad

pytestmark = [pytest.mark.trellis_only]

STORY_LIMIT_S = 300


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    workspace = Workspace(tmp_path_factory.mktemp("sso-page"))
    try:
        # One confirmation is enough for the whole story.
        yield Server.start(workspace, "--oidc-confirm", "1h")
    finally:
        workspace.close()


def test_a_user_signs_in_with_the_provider(server):
    try:
        tools = {"packages": str(packages(TESTS / "browser")), "chromium": browser()}
    except CannotBeHad as why:
        pytest.skip(f"the page cannot be tried in a browser here: {why}")
    stage = tools | {
        "url": server.url,
        "elsewhere": [server.dex.issuer],
        "tokens": {"admin": server.admin},
        "admitted": server.dex.user("ada", "researchers"),
        "refused": server.dex.user("eve", "visitors"),
        "password": PASSWORD,
        "broken": str(server.workspace.logs),
    }
    env = os.environ | {"TRELLIS_STAGE": json.dumps(stage)}
    script = Path(__file__).with_name("sign_on.mjs")
    done = subprocess.run(
        ["node", str(script)], env=env, capture_output=True, text=True, timeout=STORY_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
