"""The API keeps what its OpenAPI document says, whatever is sent: no server errors, no answer that is not described."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from harness.platform import Platform
from harness.schemathesis import Judge
from provision import CannotBeHad

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

FEDERATION = "local"
QUICK_S = 45
# What takes a federation away, or makes thousands of nodes, is tried on one that is not there.
ELSEWHERE = {"path.federation": "elsewhere"}
HARMFUL = ("apply_federation", "delete_federation", "scale_pool")
# Held requests would be most of the time that there is.
SLOW = ("read_run_log", "read_part_log")
AT_ONCE = {"query.wait": "false"}
# Whether a document, a run or settings fit together is more than a schema can say.
MORE_THAN_A_SCHEMA = ("apply_federation", "plan", "start_run")


def ask(url: str, token: str, path: str, body: dict | None = None) -> dict:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1{path}", data, headers), timeout=30) as answer:
        return json.load(answer)


@pytest.fixture
def judge(workspace) -> Iterator[Judge]:
    """In front of a federation with one node and one run that is over."""
    platform = Platform(workspace)
    platform.run("up", "--detach", "--nodes", "1")
    try:
        yield in_front_of(platform)
    finally:
        # Its parts are made to outlive everybody else.
        platform.run("down")


def in_front_of(platform: Platform) -> Judge:
    platform.wait_ready(FEDERATION)
    platform.run("run", "native:mlp", "--federation", FEDERATION, "--rounds", "1")
    url = json.loads((platform.home / "server.json").read_text())["url"]
    token = (platform.home / "admin.token").read_text().strip()
    [run] = ask(url, token, f"/federations/{FEDERATION}/runs")["items"]
    assert run["state"] == "finished", run
    spare = ask(url, token, "/tokens", {"name": "to be revoked", "role": "viewer"})["about"]["id"]
    return Judge(
        platform.workspace,
        url,
        token,
        known={"federation": FEDERATION, "run": run["id"], "part": "coordinator", "pool": "nodes"},
        # The token that the judge itself shows must last.
        fixed={name: ELSEWHERE for name in HARMFUL}
        | {name: AT_ONCE for name in SLOW}
        | {"read_app_log": AT_ONCE | {"path.node": "nodes-0"}, "revoke_token": {"path.id": spare}},
        more_than_a_schema=MORE_THAN_A_SCHEMA,
    )


def test_answers_are_as_described(judge: Judge, request):
    try:
        done = judge.try_out(QUICK_S, request.config.getoption("--seed"))
    except CannotBeHad as why:
        pytest.skip(f"Schemathesis cannot be had here: {why}")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert ask(judge.url, judge.token, "/me")["role"] == "admin", "it spoke as somebody to the end"
