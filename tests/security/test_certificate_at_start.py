"""A certificate that clients would refuse is refused by the SuperLink itself, at its start and with every reason."""

from dataclasses import replace

import pytest

from harness.credentials import TlsFiles
from harness.superlink import LinkOptions, Superlink
from harness.workspace import Workspace
from security.certificates import Signer, Wish

pytestmark = pytest.mark.trellis_only

END_LIMIT_S = 10.0
DAY_S = 86400.0
FAILED = 1
ELSEWHERE = ("--endpoint", "link.example.org")
NOT_COVERED = "server.pem: it does not cover link.example.org; it covers localhost, 127.0.0.1"
EXPIRED = "server.pem: CN=server expired on "
WRONG_KEY = "server.key: the key does not belong to the certificate"


@pytest.fixture
def signer(workspace: Workspace) -> Signer:
    return Signer(workspace.root / "ours")


def reasons(workspace: Workspace, tls: TlsFiles, *flags: str) -> list[str]:
    """Why a SuperLink does not start, line by line of its one message."""
    superlink = Superlink(workspace, LinkOptions(tls=tls, flags=flags))
    superlink.launch()
    assert superlink.process.wait_exit(END_LIMIT_S) == FAILED
    before, found, after = superlink.process.output().partition("the certificate cannot be served:\n")
    assert found and "ERROR" not in after, before + after
    return after.strip().splitlines()


@pytest.mark.parametrize(
    ("wish", "flags", "reason"),
    [
        pytest.param(Wish(), ELSEWHERE, NOT_COVERED, id="names"),
        pytest.param(Wish(until_s=-1.0), (), EXPIRED, id="expired"),
        pytest.param(Wish(since_s=DAY_S), (), "server.pem: CN=server is not valid before", id="early"),
        pytest.param(Wish(wrong_key=True), (), WRONG_KEY, id="key"),
    ],
)
def test_one_fault_is_one_reason(workspace, signer, wish, flags, reason):
    (told,) = reasons(workspace, signer.sign(wish), *flags)

    assert reason in told and "to do: " in told


def test_a_leaf_of_another_authority_is_refused(workspace, signer):
    other = Signer(workspace.root / "theirs")

    (told,) = reasons(workspace, replace(signer.sign(), ca=other.ca))

    assert "which is neither in this file nor in the CA file" in told


def test_all_faults_are_told_at_once(workspace, signer):
    told = reasons(workspace, signer.sign(Wish(until_s=-1.0, wrong_key=True)), *ELSEWHERE)

    assert len(told) == 3
    for reason in (NOT_COVERED, EXPIRED, WRONG_KEY):
        assert [reason in line for line in told].count(True) == 1, told


def test_a_good_certificate_is_served(workspace, signer):
    """The same, without a fault: the faults are what is refused."""
    wish = Wish(names=("localhost", "127.0.0.1", "link.example.org"))
    assert Superlink(workspace, LinkOptions(tls=signer.sign(wish), flags=ELSEWHERE)).start().is_serving()
