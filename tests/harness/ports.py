"""Free loopback ports for servers that are killed and come back on the same address."""

import random
import socket

HOST = "127.0.0.1"
# Below the range from which kernels take source ports: a client that retries a dead server's port must not be given
# that very port as its own and connect to itself.
LOWEST, HIGHEST = 15000, 32000
TRIES = 200

_given: set[int] = set()
_random = random.SystemRandom()


def free_port() -> int:
    """A port nobody listens on now and that this process has not handed out before."""
    for _ in range(TRIES):
        port = _random.randrange(LOWEST, HIGHEST)
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port
    raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST} in {TRIES} tries")


def free_address() -> str:
    return f"{HOST}:{free_port()}"


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
