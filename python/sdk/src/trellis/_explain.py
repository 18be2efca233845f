"""Errors of connections in words. Neither the request nor its token is in them."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from . import _decode, types
from ._http import Answer
from ._target import Target
from .errors import TrellisError, UnexpectedAnswer, Unreachable, refused

_QUOTED_BYTES = 120
_PROBLEM = "application/problem+json"


@contextmanager
def explained(target: Target) -> Iterator[None]:
    """An error of a connection becomes Unreachable."""
    try:
        yield
    except OSError as error:
        raise Unreachable(f"the server at {target.url} {_why(error)}") from None


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"has a certificate that is not trusted: {error.verify_message}. Give the certificate of its authority with "
            "root_certificates=, and call the server by a name that its certificate is for"
        )
    if isinstance(error, ssl.SSLError):
        return f"does not speak TLS as expected: {error.reason or error}. Is it an http:// server?"
    if isinstance(error, TimeoutError):
        return f"is too slow: {error}"
    said = error.strerror or str(error)
    return f"cannot be reached: {said}. Is it running? `trellis doctor` looks; url= (TRELLIS_SERVER) names another"


def refusal(target: Target, method: str, path: str, answer: Answer, body: bytes) -> TrellisError:
    """The error of an answer that is no success."""
    if answer.headers.get("content-type", "").startswith(_PROBLEM):
        return refused(answer.status, _decode.read(types.Problem, body))
    said = json.dumps(body[:_QUOTED_BYTES].decode("utf-8", "replace"))
    return UnexpectedAnswer(
        f"{target.url} answered {method} {path} with status {answer.status}: {said}. Is that a Trellis server?"
    )
