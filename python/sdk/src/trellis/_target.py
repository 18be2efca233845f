"""Which server to call and how: address, trust, token. A server is found as the command line finds it."""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Union
from urllib.parse import urlsplit

from .errors import ConfigurationError, NoServer

AnyPath = Union[str, "os.PathLike[str]"]

_MAX_TOKEN_FILE_BYTES = 64 << 10
# What a header can carry; a line break in it would begin another header.
_TOKEN = re.compile(r"[!-~]+")
_URL_ADVICE = "give a URL like https://trellis.example.org:7766"
_TOKEN_ADVICE = "give token= or token_file=, or set TRELLIS_SERVER_TOKEN_FILE"


@dataclass(frozen=True)
class Target:
    """A server. Its token is in no text that describes it."""

    url: str
    host: str
    port: int
    token: str = field(repr=False)
    trust: Optional[ssl.SSLContext] = field(repr=False)
    root_certificates: Optional[Path] = None
    allow_insecure_network: bool = False

    @property
    def authority(self) -> str:
        """As the header Host has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def find(
    url: Optional[str] = None,
    token: Optional[str] = None,
    token_file: Optional[AnyPath] = None,
    root_certificates: Optional[AnyPath] = None,
    home: Optional[AnyPath] = None,
    allow_insecure_network: bool = False,
) -> Target:
    """The server that is named, in the arguments or the environment, or else the one of this machine."""
    if home is None:
        url = url or os.environ.get("TRELLIS_SERVER") or None
        root_certificates = root_certificates or os.environ.get("TRELLIS_SERVER_ROOT_CERTIFICATES") or None
        if token is None:
            token_file = token_file or os.environ.get("TRELLIS_SERVER_TOKEN_FILE") or None
    elif url is not None:
        raise ConfigurationError("there are both url= and home=: leave out one of them")
    secret = _given_token(token, token_file)
    if url is not None:
        secret = secret or _token_of_environment()
        if secret is None:
            raise ConfigurationError(f"there is no token for {url}: {_TOKEN_ADVICE}")
        return _target(url, secret, root_certificates, allow_insecure_network)
    directory = home_directory(home)
    serving = serving_in(directory)
    if serving is None:
        raise NoServer(
            f"no server runs on this machine (for {directory}): start a federation with trellis.up() or `trellis up`, "
            "a server with `trellis server`, or name one with url="
        )
    secret = secret or _token_of_home(directory) or (_token_of_environment() if home is None else None)
    if secret is None:
        raise ConfigurationError(
            f"the server of {directory} has no admin token there: {_TOKEN_ADVICE}, or restart the server: it makes a new one"
        )
    bundle = root_certificates or serving.get("root_certificates")
    return _target(serving["url"], secret, bundle, allow_insecure_network)


def home_directory(given: Optional[AnyPath] = None) -> Path:
    """Where the server of this machine keeps its files."""
    named = given or os.environ.get("TRELLIS_HOME")
    if named:
        return Path(named).absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    # A relative XDG directory is to be ignored, says its specification.
    parent = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return parent / "trellis"


def serving_in(home: Path) -> Optional[dict[str, str]]:
    """What the server of this home says about itself; None if it does not run."""
    try:
        serving = json.loads((home / "server.json").read_bytes())
        holder = _lock_holder(home / "lock")
    except (OSError, ValueError):
        return None
    # What a dead server left is not believed.
    return serving if holder is not None and holder == serving.get("pid") else None


def _lock_holder(path: Path) -> Optional[int]:
    """The process that holds the lock; None if nobody does."""
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read() or b"0")
    return None


def _given_token(token: Optional[str], file: Optional[AnyPath]) -> Optional[str]:
    if token is not None and file is not None:
        raise ConfigurationError("there are both token= and token_file=: leave out one of them")
    if token is not None:
        return _checked(token, "token=")
    return None if file is None else _checked(_read_token(Path(file)), str(file))


def _token_of_environment() -> Optional[str]:
    variable = os.environ.get("TRELLIS_SERVER_TOKEN")
    return _checked(variable, "TRELLIS_SERVER_TOKEN") if variable else None


def _token_of_home(home: Path) -> Optional[str]:
    """That of the administrator whom the server made."""
    file = home / "admin.token"
    return _checked(_read_token(file), str(file)) if file.is_file() else None


def _read_token(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_TOKEN_FILE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigurationError(f"the token file {file} cannot be read: {error.strerror}") from None


def _checked(token: str, place: str) -> str:
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(f"there is no token in {place}: give what `trellis token server add` printed, and nothing else")
    return token


def _target(url: str, token: str, bundle: Optional[AnyPath], allow_insecure_network: bool) -> Target:
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").encode("idna").decode()
    except ValueError:
        raise ConfigurationError(f"the URL has no usable host and port: {_URL_ADVICE}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("the URL of a server has no user and no password: " + _TOKEN_ADVICE)
    if parts.scheme not in ("http", "https") or not host or parts.path or parts.query or parts.fragment:
        raise ConfigurationError(f"{url!r} is no URL of a server: {_URL_ADVICE}")
    secure = parts.scheme == "https"
    if not secure and not allow_insecure_network and not _is_loopback(host):
        raise ConfigurationError(
            f"{url} is not on this machine, and the token could be read on the way: use https; "
            "where the whole network is trusted, add allow_insecure_network=True"
        )
    return Target(
        url=url,
        host=host,
        port=port or (443 if secure else 80),
        token=token,
        trust=_trust(bundle) if secure else None,
        root_certificates=Path(bundle).absolute() if bundle and secure else None,
        allow_insecure_network=allow_insecure_network,
    )


def _trust(bundle: Optional[AnyPath]) -> ssl.SSLContext:
    """The authorities in a PEM file and no others, or those of the system."""
    try:
        return ssl.create_default_context(cafile=bundle)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the authorities in {bundle} cannot be used: {error}. Give a PEM file with root_certificates="
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
