"""Why a call did not succeed. The text of an error says what failed and what to do; a token is never part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .types import Detail

if TYPE_CHECKING:
    from .types import Problem

_NOT_NOW = {"not-now", "under-way", "busy"}
_URN = "urn:trellis:"


class TrellisError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(TrellisError):
    """The arguments, the environment or the files of the caller cannot be used."""


class NoServer(TrellisError):
    """No server runs on this machine, and none is named."""


class NoProgram(TrellisError):
    """The program `trellis` is not installed."""


class Unreachable(TrellisError):
    """The server does not answer, or cannot be trusted."""


class UnexpectedAnswer(TrellisError):
    """Something answered, but not as a Trellis server does."""


class Problems(TrellisError):
    """Something was refused. `problems` lists each thing that is wrong, with its place and advice."""

    def __init__(self, detail: str, problems: Sequence[Detail] = ()) -> None:
        self.detail = detail
        self.problems = tuple(problems)
        lines = [detail]
        for problem in self.problems:
            lines.append(f"- {_place(problem)}{problem.what}")
            if problem.advice:
                lines.append(f"  to do: {problem.advice}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[Problems], tuple[object, ...]]:
        # As the constructor takes it: errors cross process boundaries in pools of workers.
        return type(self), (self.detail, self.problems)


class ProgramFailed(Problems):
    """The program `trellis` ended with an error."""


class Refused(Problems):
    """The server refused a call: `status` is that of HTTP, `kind` the word that docs/api.md lists."""

    def __init__(self, status: int, kind: str, detail: str, problems: Sequence[Detail] = ()) -> None:
        self.status = status
        self.kind = kind
        super().__init__(detail, problems)

    def __reduce__(self) -> tuple[type[Problems], tuple[object, ...]]:
        return type(self), (self.status, self.kind, self.detail, self.problems)

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (429, 503) or self.kind in _NOT_NOW


class Unauthorized(Refused):
    """The token is missing, unknown, revoked or expired."""


class Forbidden(Refused):
    """The role of the token does not allow the call."""


class NotFound(Refused):
    """There is no such federation, node, run or model."""


class Conflict(Refused):
    """The call does not fit what is there now."""


class Invalid(Refused):
    """What was sent cannot be used."""


class RunFailed(TrellisError):
    """A run ended as failed."""

    def __init__(self, run: str, details: str) -> None:
        self.run = run
        self.details = details
        super().__init__(f"run {run} failed: {details or 'its log says why'}")

    def __reduce__(self) -> tuple[type[RunFailed], tuple[str, str]]:
        return type(self), (self.run, self.details)


class WaitTimeout(TrellisError, TimeoutError):
    """What was waited for did not happen in time. It goes on."""


_BY_STATUS: dict[int, type[Refused]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: Invalid,
    415: Invalid,
    422: Invalid,
}
_ADVICE = {
    401: "Give a token that counts: token=, token_file=, TRELLIS_SERVER_TOKEN or TRELLIS_SERVER_TOKEN_FILE.",
    403: "Ask an admin of the server for a token with another role.",
}


def refused(status: int, problem: Problem) -> Refused:
    """The error of a problem document."""
    said = problem.detail or problem.title
    detail = f"{said} {_ADVICE[status]}" if status in _ADVICE else said
    return _BY_STATUS.get(status, Refused)(status, problem.type.replace(_URN, "", 1), detail, problem.problems)


def _place(problem: Detail) -> str:
    where = problem.path
    if problem.line is not None:
        where += f" (line {problem.line}, column {problem.column})" if problem.column else f" (line {problem.line})"
    return f"{where.strip()}: " if where else ""
