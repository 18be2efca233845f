"""A foreign web page in real Chromium calls a SuperLink without accounts on this machine."""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from harness.accounts import Api, administrator
from harness.npm import browser, packages
from harness.place import Place
from harness.ports import HOST
from harness.superlink import LinkOptions, Superlink
from harness.workspace import TESTS
from provision import CannotBeHad

pytestmark = [pytest.mark.trellis_only]

BROWSER_LIMIT_S = 120


class EvilPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>nothing to see</title>")

    def log_message(self, *_: object) -> None:
        pass


def test_no_page_of_elsewhere_can_call(workspace):
    try:
        tools = {"packages": str(packages(TESTS / "browser")), "chromium": browser()}
    except CannotBeHad as why:
        pytest.skip(f"no page can be tried in a browser here: {why}")
    trusting = Superlink(Place.within(workspace, "trusting"), LinkOptions(flags=("--account-auth", "off"))).start()
    asking = Superlink(Place.within(workspace, "asking"), LinkOptions(flags=("--account-auth", "on"))).start()
    evil = HTTPServer((HOST, 0), EvilPage)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    given = tools | {
        "evil": f"http://evil.example:{evil.server_port}/",
        "port": trusting.http_port,
        "login_port": asking.http_port,
        "token": administrator(asking).token,
    }

    script = str(Path(__file__).with_name("pages.mjs"))
    environment = os.environ | {"TRELLIS_PAGES": json.dumps(given)}
    done = subprocess.run(
        ["node", script], env=environment, capture_output=True, text=True, timeout=BROWSER_LIMIT_S, check=False
    )
    evil.shutdown()

    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["rebound"], outcome["rebound_grpc"]) == (421, 421), outcome
    assert "Failed to fetch" in outcome["json"], "the browser asked first, and was not allowed"
    accounts = [account["name"] for account in Api(trusting).call("list-accounts")["accounts"]]
    assert "intruder" not in accounts, outcome
    assert outcome["own_page"] == 200, outcome
    assert "No pending login has this code" in outcome["login"], "its own form passes, and the token is good"
