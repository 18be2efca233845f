"""Flower federations from Python: start one, train on it, read results.

    import trellis

    with trellis.up(nodes=4) as federation:
        run = federation.run("native:mlp", rounds=10, strategy="FedAdam")
        run.wait()
        print(run.history.column("evaluate_eval_acc"))

`trellis.aio` has the same for asyncio. Both call the REST API of a server (docs/api.md).
"""

from . import aio, errors, types
from ._history import History
from ._sync._client import Client, connect
from ._sync._local import LocalFederation, up
from ._sync._run import Run
from .errors import (
    Conflict,
    Forbidden,
    Invalid,
    NoProgram,
    NoServer,
    NotFound,
    ProgramFailed,
    Refused,
    RunFailed,
    TrellisError,
    Unauthorized,
    Unreachable,
    WaitTimeout,
)

__version__ = "0.2.0"

__all__ = [
    "Client",
    "Conflict",
    "Forbidden",
    "History",
    "Invalid",
    "LocalFederation",
    "NoProgram",
    "NoServer",
    "NotFound",
    "ProgramFailed",
    "Refused",
    "Run",
    "RunFailed",
    "TrellisError",
    "Unauthorized",
    "Unreachable",
    "WaitTimeout",
    "aio",
    "connect",
    "errors",
    "types",
    "up",
]
