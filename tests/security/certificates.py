"""Certificates that are wrong in a chosen way, which `trellis pki` would not issue."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness.credentials import TlsFiles

HERE = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Wish:
    """What a leaf shall be like. Times are seconds from now."""

    names: tuple[str, ...] = HERE
    since_s: float = -3600.0
    until_s: float = 90 * 86400.0
    # Put the key of another leaf beside it.
    wrong_key: bool = False


FAULTLESS = Wish()


class Signer:
    """A CA that signs whatever it is told to."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test CA {directory.name}")])
        self.ca = directory / "ca.crt"
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        built = self._builder(self._name, self._key, FAULTLESS).add_extension(constraint, critical=True)
        self.ca.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, wish: Wish = FAULTLESS, name: str = "server") -> TlsFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives = x509.SubjectAlternativeName([_general(wanted) for wanted in wish.names])
        built = self._builder(subject, key, wish).add_extension(alternatives, critical=False)
        built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        files = TlsFiles(self.ca, self._directory / f"{name}.pem", self._directory / f"{name}.key")
        files.cert.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        beside = ec.generate_private_key(ec.SECP256R1()) if wish.wrong_key else key
        files.key.write_bytes(
            beside.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        files.key.chmod(0o600)
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, wish: Wish) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(seconds=wish.since_s))
            .not_valid_after(now + datetime.timedelta(seconds=wish.until_s))
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
