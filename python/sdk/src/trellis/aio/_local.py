"""Federations of this machine: started and ended by the program `trellis`."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Optional

from .. import _program, _target
from .. import types as data
from .._target import AnyPath
from ..errors import ConfigurationError, NoServer
from ._client import Client, connect
from ._io import execute
from ._run import Run

_NAME = "local"


async def up(
    name: str = _NAME,
    *,
    nodes: Optional[int] = None,
    document: Optional[AnyPath] = None,
    python: Optional[AnyPath] = None,
    home: Optional[AnyPath] = None,
    program: Optional[AnyPath] = None,
) -> LocalFederation:
    """Starts a federation on this machine, with a server if there is none, and waits until it is ready.

    It has `nodes` nodes (4), or is as the file `document` says. Apps run with `python`; the default is this interpreter if it
    has flwr, or else that of the `flwr` on PATH. The federation stays until `down()`, or the end of a `with` block that
    started it. `home` is where the server keeps its files, `program` the trellis to start.
    """
    if document is not None and (nodes is not None or python is not None):
        raise ConfigurationError("a document says which nodes there are and their Python: leave out nodes= and python=")
    found, env = _program.find(program), _program.environment(home)
    started = not await _is_there(name, home)
    if python is None and document is None and started:
        python = _program.python_with_flower()
    finished = await execute(_program.up(found, name, nodes, document, python), env)
    if finished.code != 0:
        raise _program.failed("trellis up", finished)
    return LocalFederation(name, await connect(home=_target.home_directory(home)), started, found, env)


async def _is_there(name: str, home: Optional[AnyPath]) -> bool:
    """Whether a federation of this name is up already: then it is not ours to end."""
    try:
        client = await connect(home=_target.home_directory(home))
        return name in [federation.name for federation in await client.federations()]
    except NoServer:
        return False


class LocalFederation:
    """A federation on this machine. As a context manager it ends what it started."""

    def __init__(self, name: str, client: Client, started: bool, program: str, env: Mapping[str, str]) -> None:
        self.name = name
        self.client = client
        # False: it was there before.
        self.started = started
        self._program = program
        self._env = env

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.url}>"

    @property
    def url(self) -> str:
        """The server and its page."""
        return self.client.url

    async def run(
        self,
        app: AnyPath = "native:mlp",
        *,
        config: Optional[Mapping[str, data.Scalar]] = None,
        native_server: Optional[bool] = None,
        **settings: data.Scalar,
    ) -> Run:
        """Starts a run on it, as `Client.run` does."""
        return await self.client.run(
            app, self.name, config=config, native_server=native_server, program=self._program, **settings
        )

    async def detail(self) -> data.FederationDetail:
        """Its document, and what was seen last."""
        return await self.client.federation(self.name)

    async def down(self) -> None:
        """Ends it: its runs, its processes and, with the last federation, the server. Models and the list of runs stay."""
        finished = await execute([self._program, "down", self.name], self._env)
        if finished.code != 0:
            raise _program.failed("trellis down", finished)

    async def __aenter__(self) -> LocalFederation:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self.started:
            await self.down()
