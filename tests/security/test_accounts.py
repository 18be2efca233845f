"""Who may submit: accounts with roles, used by official command lines that log in."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.accounts import Refused, log_in
from harness.credentials import make_node_key
from harness.flower_cli import FEDERATION, Answer
from harness.process import wait_pid_file

pytestmark = pytest.mark.trellis_only

VERSIONS = ("1.25", "1.37", "1.42")
START_LIMIT_S = 60.0
LATER_S, MUCH_LATER_S = 2 * 3600, 40 * 86400


def said(answer: Answer) -> str:
    """In one line, without the frames that newer command lines put around errors."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", answer.text).split())


@pytest.mark.parametrize("version", [pytest.param("1.25", marks=pytest.mark.quick), "1.37", "1.42"])
def test_who_has_not_logged_in_is_told_how_and_gets_nothing(office, workspace, version):
    stranger = office.person(workspace, "stranger", version)
    key = make_node_key(workspace.root / "keys", "stranger")
    before = (office.control.runs(), office.control.nodes())
    here = stranger.cli.here
    commands = [
        ("ls", *here),
        ("run", ".", FEDERATION),
        ("stop", "1", *here),
        ("supernode", "list", *here),
        ("supernode", "register", str(key.public), *here),
    ]

    with ThreadPoolExecutor(len(commands)) as desk:
        answers = list(desk.map(lambda words: stranger.cli.run_command(*words), commands))

    for words, answer in zip(commands, answers, strict=True):
        assert "flwr login" in said(answer), f"flwr {' '.join(words)}: {answer.text}"
    assert (office.control.runs(), office.control.nodes()) == before


@pytest.mark.parametrize("version", ["1.25", "1.37", pytest.param("1.42", marks=pytest.mark.quick)])
def test_each_role_may_do_its_part_and_no_more(office, workspace, version):
    viewer, runner, other, admin = people = [office.person(workspace, name, version) for name in office.tokens]
    log_in(*people)
    key = make_node_key(workspace.root / "keys", version)

    run_id = runner.cli.submit(pid_path=workspace.root / "pid")
    wait_pid_file(workspace.root / "pid", START_LIMIT_S)

    assert run_id in viewer.cli.runs()
    refused = [
        (viewer, ("run", ".", FEDERATION), "'vera' has the role viewer; this needs the role runner"),
        (viewer, ("stop", str(run_id), *viewer.cli.here), "'vera' has the role viewer; this needs the role runner"),
        (other, ("stop", str(run_id), *other.cli.here), "Run ID does not belong to the account"),
        (
            runner,
            ("supernode", "register", str(key.public), *runner.cli.here),
            "'rolf' has the role runner; this needs",
        ),
    ]
    with ThreadPoolExecutor(len(refused)) as desks:
        answers = list(desks.map(lambda asked: asked[0].cli.run_command(*asked[1]), refused))
    for (_, words, reason), answer in zip(refused, answers, strict=True):
        assert reason in said(answer), f"flwr {' '.join(words)}: {answer.text}"
    assert office.control.run(run_id).status == "running"
    runner.cli.stop(run_id)
    assert office.control.run(run_id).status == "finished:stopped"
    node_id = int(admin.cli.json("supernode", "register", str(key.public), *admin.cli.here)["node-id"])
    assert office.control.nodes()[node_id] == "registered"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_login_is_approved_only_with_the_token_of_an_account(office, workspace, version):
    viewer = office.person(workspace, "vera", version)
    login = viewer.begin_login()
    assert login.page_address == office.superlink.http_address, "the page that users are sent to"

    for token in ("", "trellis_" + "0" * 64):
        with pytest.raises(Refused, match="The token is not valid") as refused:
            login.approve(token)
        assert refused.value.status == 403
    assert login.process.alive and viewer.credentials() == ""
    assert "You are logged in as <b>vera</b>" in login.approve()

    assert "Login successful" in login.finish()
    assert viewer.ask("ls").code == 0


def test_logins_are_renewed_unnoticed_until_nobody_used_them_for_long(open_office, workspace):
    office = open_office()
    people = [office.person(workspace, "rolf", version) for version in VERSIONS]
    log_in(*people)
    kept = [person.credentials() for person in people]
    assert all(kept) and len(set(kept)) == len(kept)

    office.restart(LATER_S)
    for person, before in zip(people, kept, strict=True):
        assert person.cli.runs() == {}
        renewed = person.credentials()
        assert renewed != before, f"flwr {person.cli.release.version} did not renew what had expired"
        assert (person.cli.runs(), person.credentials()) == ({}, renewed), "and that is renewed only when it expires"

    office.restart(MUCH_LATER_S)
    for person in people:
        assert re.search("flwr login|Log in again", said(person.ask("ls")))


def test_a_disabled_account_is_out_at_once_and_stays_out(open_office, workspace):
    office = open_office()
    people = [office.person(workspace, "rita", version) for version in VERSIONS]
    log_in(*people)
    assert [person.ask("ls").code for person in people] == [0, 0, 0]

    office.admin.call("disable-account", name="rita")
    refused = [said(person.ask("ls")) for person in people]
    office.admin.call("enable-account", name="rita")
    refused += [said(person.ask("ls")) for person in people]

    for text in refused:
        assert re.search("flwr login|Log in again", text)


def test_no_token_is_found_in_the_state(office, workspace):
    """But for that of the first account, which has to be read once."""
    person = office.person(workspace, "ada", "1.25")
    log_in(person)
    secrets = [*office.tokens.values(), *re.findall("trellis_[0-9a-f]{64}", person.credentials())]
    assert len(secrets) == len(office.tokens) + 2
    state = office.superlink.state_dir

    for secret in [*secrets, office.admin.token]:
        found = subprocess.run(["grep", "-rlaF", secret, state], capture_output=True, text=True, check=False).stdout
        expected = [str(state / "admin.token")] if secret == office.admin.token else []
        assert found.split() == expected
    assert (state / "admin.token").stat().st_mode & 0o777 == 0o600
