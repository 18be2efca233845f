"""The asynchronous client: the same names as in `trellis`, with `await` before calls and `async for` over streams."""

from ._client import Client, connect
from ._local import LocalFederation, up
from ._run import Run

__all__ = ["Client", "LocalFederation", "Run", "connect", "up"]
