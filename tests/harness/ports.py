"""Free loopback ports for servers that are killed and come back on the same address."""

import random
import socket

HOST = "127.0.0.1"
# Below the ephemeral port range: a client that retries the port of a dead server must not get that port as its own source port
# and connect to itself.
LOWEST, HIGHEST = 15000, 32000
TRIES = 200

_given: set[int] = set()
_random = random.SystemRandom()


def free_port() -> int:
    """A port that is free now and that this process has not returned before."""
    for _ in range(TRIES):
        port = _random.randrange(LOWEST, HIGHEST)
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port
    raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST} in {TRIES} attempts")


def free_address() -> str:
    return f"{HOST}:{free_port()}"


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
