"""TLS with a live SuperLink: which clients and which servers refuse each other."""

import copy
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from harness.control import Control
from harness.federation import APPS
from harness.flower_cli import FlwrCli
from harness.superlink import LinkOptions, Superlink
from harness.waiting import wait_for
from harness.workspace import Workspace
from security.certificates import Signer, Wish
from security.handshake import LIMIT_S, OldServer, offering, served_certificate, shake, trusting

pytestmark = pytest.mark.trellis_only

PORTS = ("control_address", "fleet_address", "http_address")
SHORT_LIFE_S = 4.0
EXPIRED_LIMIT_S = 10.0
RELOAD_LIMIT_S = 10.0


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    made = Workspace(tmp_path_factory.mktemp("tls"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def signer(grounds: Workspace) -> Signer:
    return Signer(grounds.root / "ours")


@pytest.fixture(scope="module")
def stranger(grounds: Workspace) -> Signer:
    """A CA that nobody here has to do with."""
    return Signer(grounds.root / "theirs")


@pytest.fixture(scope="module")
def superlink(grounds: Workspace, signer: Signer) -> Superlink:
    return Superlink(grounds, LinkOptions(tls=signer.sign())).start()


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_current_versions_are_served(superlink, signer, port, version):
    context = trusting(signer.ca)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version.replace(".", "_")]
    context.set_alpn_protocols(["h2"])

    with shake(getattr(superlink, port), context) as connection:
        assert (connection.version(), connection.selected_alpn_protocol()) == (version, "h2")


@pytest.fixture(scope="module")
def old_server(superlink: Superlink) -> Iterator[OldServer]:
    """The control: what it accepts was really offered."""
    made = OldServer(superlink.options.tls)
    yield made
    made.close()


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("newest", ["TLSv1", "TLSv1.1"])
def test_old_versions_are_refused(superlink, old_server, signer, port, newest):
    context = offering(ssl.TLSVersion[newest.replace(".", "_")], signer.ca)
    with shake(old_server.address, context) as accepted:
        assert accepted.version() == newest

    with pytest.raises(ssl.SSLError, match="(?i)alert (protocol version|handshake failure)"):
        shake(getattr(superlink, port), context)


@pytest.mark.parametrize("cipher", ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"])
def test_ciphers_without_authenticated_encryption_are_refused(superlink, old_server, signer, cipher):
    context = trusting(signer.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{cipher}:@SECLEVEL=0")
    with shake(old_server.address, context) as accepted:
        assert accepted.cipher()[0] == cipher

    with pytest.raises(ssl.SSLError, match="(?i)handshake failure"):
        shake(superlink.http_address, context)


@pytest.mark.parametrize("port", PORTS)
def test_a_client_that_does_not_know_the_authority_goes_no_further(superlink, stranger, port):
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        shake(getattr(superlink, port), trusting(stranger.ca))


@pytest.mark.parametrize("port", PORTS)
def test_a_client_that_wanted_another_server_goes_no_further(superlink, signer, port):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(getattr(superlink, port), trusting(signer.ca), "link.example.org")


@pytest.mark.parametrize("port", PORTS)
def test_without_tls_nothing_is_answered(superlink, port):
    host, _, number = getattr(superlink, port).rpartition(":")
    with socket.create_connection((host, int(number)), LIMIT_S) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: superlink\r\n\r\n")
        heard = connection.recv(4096)

    # An alert, which is no plain text either, or the end of the connection.
    assert heard[:1] in (b"", b"\x15"), heard


def test_a_grpc_client_without_tls_is_not_served(superlink):
    with pytest.raises(grpc.RpcError) as refused:
        Control(superlink.control_address, None).runs()
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("version", ["1.25", "1.42"])
def test_flwr_with_another_authority_sends_nothing(superlink, stranger, workspace, version):
    elsewhere = copy.copy(superlink)
    elsewhere.options = replace(superlink.options, tls=stranger.sign())
    cli = FlwrCli(workspace, workspace.copy_app(APPS / "faulty"), elsewhere, version=version)

    answer = cli.run_command("ls", *cli.here)

    assert "Connection to the SuperLink is unavailable" in " ".join(answer.text.split())


def test_a_leaf_that_expires_while_it_is_served_is_refused_by_clients(workspace, signer):
    tls = signer.sign(Wish(until_s=SHORT_LIFE_S), "short")
    superlink = Superlink(workspace, LinkOptions(tls=tls)).start()
    with shake(superlink.http_address, trusting(signer.ca)):
        pass

    def refused() -> ssl.SSLCertVerificationError | None:
        try:
            shake(superlink.http_address, trusting(signer.ca)).close()
        except ssl.SSLCertVerificationError as error:
            return error
        return None

    assert "certificate has expired" in str(wait_for("the leaf to expire", refused, EXPIRED_LIMIT_S))


def test_a_bad_certificate_is_not_taken_up_and_the_next_good_one_is(workspace, signer):
    superlink = Superlink(workspace, LinkOptions(tls=signer.sign(name="changing"))).start()
    first = served_certificate(superlink.http_address, signer.ca)

    signer.sign(Wish(until_s=-1.0, wrong_key=True), "changing")
    superlink.process.wait_line("the new certificate is refused, the old one stays in use", RELOAD_LIMIT_S)
    assert served_certificate(superlink.http_address, signer.ca) == first

    signer.sign(name="changing")
    superlink.process.wait_line("serving a new certificate", RELOAD_LIMIT_S)
    assert served_certificate(superlink.http_address, signer.ca) != first
