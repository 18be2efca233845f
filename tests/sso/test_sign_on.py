"""Single sign-on at a real provider (Dex): who gets in, with which role, for how long; and who is refused, which the audit log says."""

import time
import urllib.parse
from collections.abc import Iterator

import pytest

from harness.dex import OTHER_CLIENT, Visitor
from harness.sign_on import Server
from harness.waiting import wait_for
from harness.workspace import Workspace

pytestmark = [pytest.mark.trellis_only]

# Provider and server each have a second to take notice.
NOTICE_LIMIT_S = 20.0
# What a call may take while the provider is away: nothing waits for it.
PROMPT_S = 5.0
# By how much the clocks of provider and server may differ.
CLOCK_SKEW_S = 30
# From this age on, documents of the provider are read again for a token with an unknown key.
KEYS_AGE_S = 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    workspace = Workspace(tmp_path_factory.mktemp("sso"))
    try:
        yield Server.start(workspace)
    finally:
        workspace.close()


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Servers of one test alone, whose provider it may stop."""
    workspaces = []

    def start(*words: str, **of_dex: object) -> Server:
        workspaces.append(Workspace(tmp_path_factory.mktemp("sso-own")))
        return Server.start(workspaces[-1], *words, **of_dex)

    yield start
    for workspace in workspaces:
        workspace.close()


@pytest.mark.quick
def test_a_user_has_the_highest_role_of_their_groups(server):
    for name, groups, role in (("ada", ("staff", "researchers"), "runner"), ("root", ("platform",), "admin")):
        email = server.dex.user(name, *groups)
        token = server.sign_in(email)
        assert server.me(token) == (email, role)
        assert [entry["actor"] for entry in server.audit("signed-in")][-1] == email
    assert server.call("GET", "/sign-on") == (200, {"name": "Clinic", "issuer": server.dex.issuer})


@pytest.mark.quick
def test_tokens_of_the_provider_stay_at_the_server_and_sessions_are_short(server):
    token = server.sign_in(server.dex.user("bob", "staff"))
    assert token.startswith("trellis_")
    _, tokens = server.call("GET", "/tokens", token=server.admin)
    [entry] = [entry for entry in tokens if entry["name"] == "bob@example.org"]
    assert 0 < entry["expires_at"] - time.time() < 5, "four confirmations of a second"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("groups", "verified", "why"),
    [(("visitors",), True, "missing group"), ((), True, "missing group"), (("staff",), False, "not verified")],
)
def test_users_without_a_group_or_a_name_are_refused(server, groups, verified, why):
    email = server.dex.user("eve", *groups, verified=verified)
    fragment, _ = server.returned(email)
    assert why in fragment["sign-on-error"]
    entry = server.audit("sign-in-refused")[-1]
    assert entry["actor"] == email and why in entry["detail"], entry


@pytest.mark.quick
def test_an_id_token_is_exchanged_if_it_is_for_this_server(server):
    email = server.dex.user("ci", "researchers")
    status, issued = server.call("POST", "/sign-on/token", {"id_token": server.dex.id_token(email)})
    assert status == 201 and server.me(issued["token"]) == (email, "runner")

    token = server.dex.id_token(email)
    head, payload, signature = token.split(".")
    for proof, why in [
        (server.dex.id_token(email, OTHER_CLIENT), "wrong audience"),
        (f"{head}.{payload}.{signature[:-4]}AAAA", "signature"),
        (server.dex.id_token(email, scopes=("openid", "email")), "missing group"),
        ("nonsense", "malformed"),
    ]:
        status, problem = server.call("POST", "/sign-on/token", {"id_token": proof})
        assert (status, problem["type"]) == (403, "urn:trellis:not-admitted"), problem
        assert why in problem["detail"] and why in server.audit("sign-in-refused")[-1]["detail"], problem


def test_an_expired_id_token_is_refused(own):
    server = own(id_tokens_s=1)
    token = server.dex.id_token(server.dex.user("ada", "staff"))
    time.sleep(CLOCK_SKEW_S + 2)
    status, problem = server.call("POST", "/sign-on/token", {"id_token": token})
    assert status == 403 and "expired" in problem["detail"], problem
    assert "expired" in server.audit("sign-in-refused")[-1]["detail"]


@pytest.mark.quick
def test_the_code_of_a_login_is_for_who_began_it_and_works_once(server):
    email = server.dex.user("ada", "staff")
    fragment, verifier = server.returned(email)
    code = fragment["sign-on-code"]
    thief = {"browser": {"code": code, "verifier": server.begin()[1]}}
    owner = {"browser": {"code": code, "verifier": verifier}}
    for proof in (thief, owner):
        assert server.call("POST", "/sign-on/token", proof)[0] == 403, "a stolen code ends with the attempt"

    start, _ = server.begin()
    visitor = Visitor()
    with visitor.ask(start) as sent:
        state = urllib.parse.parse_qs(urllib.parse.urlsplit(sent.headers["Location"]).query)["state"][0]
    for query in ({"code": "x", "state": "forged"}, {"error": "access_denied", "state": state}, {"code": "x", "state": state}):
        place, _ = visitor.follow(f"{server.url}/api/v1/sign-on/callback?{urllib.parse.urlencode(query)}")
        assert place.startswith(f"{server.url}/#sign-on-error="), place
    assert "access_denied" in server.audit("sign-in-refused")[-2]["detail"]


@pytest.mark.quick
def test_a_revoked_session_ends_at_once(server):
    email = server.dex.user("mallory", "staff")
    token = server.sign_in(email)
    assert server.me(token) == (email, "viewer")
    _, tokens = server.call("GET", "/tokens", token=server.admin)
    [entry] = [entry for entry in tokens if entry["name"] == email]
    assert server.call("DELETE", f"/tokens/{entry['id']}", token=server.admin)[0] == 204
    assert server.me(token) == 401
    time.sleep(2.5)
    assert server.me(token) == 401, "the provider still confirms the user, and brings nothing back"
    assert server.audit("token-revoked")[-1]["subject"] == entry["id"]
    refused = server.audit("call-refused")[-1]
    assert refused["actor"] == entry["id"] and "revoked" in refused["detail"], refused


@pytest.mark.quick
def test_a_session_follows_what_the_provider_says_of_its_user(server):
    email = server.dex.user("grace", "researchers")
    token = server.sign_in(email)
    time.sleep(5)
    assert server.me(token) == (email, "runner"), "it outlives its first four seconds"
    server.dex.user("grace", "staff")
    wait_for("the lower role", lambda: server.me(token) == (email, "viewer"), NOTICE_LIMIT_S)
    server.dex.remove(email)
    wait_for("the end of the session", lambda: server.me(token) == 401, NOTICE_LIMIT_S)
    ended = [entry for entry in server.audit("session-ended") if entry["actor"] == email]
    assert len(ended) == 1, ended


@pytest.mark.quick
def test_a_user_signs_out_and_tokens_of_administrators_stay(server):
    token = server.sign_in(server.dex.user("joan", "staff"))
    assert server.call("DELETE", "/sign-on/token", token=token)[0] == 204
    assert server.me(token) == 401
    assert server.call("DELETE", "/sign-on/token", token=server.admin)[0] == 204
    assert server.me(server.admin) == ("admin.token", "admin")


def test_a_session_ends_after_its_time(own):
    server = own("--oidc-confirm", "1s", "--oidc-session", "3s")
    token = server.sign_in(server.dex.user("ada", "staff"))
    assert server.me(token) == ("ada@example.org", "viewer")
    wait_for("the end of the session", lambda: server.me(token) == 401, NOTICE_LIMIT_S)
    refused = server.audit("call-refused")[-1]
    assert "expired" in refused["detail"], refused


def test_a_provider_that_is_down_ends_no_session_and_holds_up_nobody(own):
    server = own("--oidc-confirm", "5s")
    token = server.sign_in(server.dex.user("ada", "researchers"))
    server.dex.stop()
    start, _ = server.begin()
    # Its documents are known: the browser is sent to it, and the back channel fails.
    for body in ({"id_token": "a.b.c"}, {"device": "unknown"}):
        began = time.monotonic()
        assert server.call("POST", "/sign-on/token", body)[0] in (403, 502)
        assert time.monotonic() - began < PROMPT_S
    status, problem = server.call("POST", "/sign-on/device", {})
    assert (status, problem["type"]) == (502, "urn:trellis:no-provider"), problem
    time.sleep(12)
    assert server.me(token) == ("ada@example.org", "runner"), "two confirmations were missed"
    assert server.me(server.admin) == ("admin.token", "admin")
    server.dex.start()
    token = server.sign_in("ada@example.org")
    assert server.me(token) == ("ada@example.org", "runner")


def test_new_keys_of_the_provider_are_taken_up(own):
    for algorithm in ("RS256", "ES256"):
        server = own(algorithm=algorithm)
        email = server.dex.user("ada", "staff")
        old = server.dex.id_token(email)
        assert server.me(server.sign_in(email)) == (email, "viewer"), algorithm
        server.dex.stop()
        server.dex.start()
        time.sleep(KEYS_AGE_S)
        assert server.me(server.sign_in(email)) == (email, "viewer"), algorithm
        status, problem = server.call("POST", "/sign-on/token", {"id_token": old})
        assert status == 403 and "key that the provider does not have" in problem["detail"], problem


def test_who_calls_too_often_waits_and_the_provider_is_left_alone(own):
    server = own()
    statuses = [server.call("POST", "/sign-on/device", {})[0] for _ in range(100)]
    assert 40 <= statuses.count(200) < 90 and statuses[-1] == 429, statuses
    assert server.me(server.admin) == ("admin.token", "admin"), "callers with a token are not held up"
