"""An unauthenticated attacker: `flood.py ADDRESS CA SECONDS CONNECTIONS` keeps this many connections busy with
requests that try to exhaust memory, permits or time of the server. Prints the number of attempts.

A separate process, which the test confines to a core of its own.
"""

import asyncio
import contextlib
import os
import ssl
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attacks.intruder import Signer  # noqa: E402

STRANGER = Signer()
LIST = b"\x12\x00" * (1 << 19)
PIECE = 1 << 16
PAUSE_S = 0.02
ANSWER_LIMIT_S = 10.0
PROTOBUF = "content-type: application/protobuf\r\n"


def head(path: str, more: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{more}content-length: {length}\r\n\r\n".encode()


def signed() -> str:
    """Headers of a node, signed with an unregistered key."""
    return PROTOBUF + "".join(f"{name}: {value}\r\n" for name, value in STRANGER.headers().items())


async def drip(write, read) -> None:
    """Announces a message and sends one byte of it."""
    write(head("/v1/fleet/push-messages", signed(), 60_000) + b"\x12")
    await read(1)


async def pour(write, read) -> None:
    """Sends a list of empty messages as fast as it can."""
    write(head("/v1/fleet/push-messages", signed(), len(LIST)))
    for start in range(0, len(LIST), PIECE):
        write(LIST[start : start + PIECE])
        await asyncio.sleep(0)
    await read(1)


async def guess(write, read) -> None:
    """Tries random tokens."""
    for _ in range(20):
        write(head("/v1/control/list-runs", f"{PROTOBUF}authorization: Bearer {os.urandom(16).hex()}\r\n", 0))
        await read(PIECE)


async def withhold(write, read) -> None:
    """Sends a message that needs no authentication, except for its last byte."""
    write(head("/v1/control/get-auth-tokens", PROTOBUF, 16_000) + bytes(15_999))
    await read(1)


async def log_in(write, read) -> None:
    """Begins logins and never completes them."""
    for _ in range(20):
        write(head("/v1/control/get-login-details", PROTOBUF, 0))
        await read(PIECE)


async def boast(write, read) -> None:
    """Sends headers that exceed the size limit."""
    write(head("/v1/fleet/get-run", "".join(f"x-{n}: {'y' * 4000}\r\n" for n in range(90)), 0))
    await read(1)


async def be_silent(write, read) -> None:
    """Sends nothing."""
    await read(1)


ATTACKS = (drip, pour, guess, withhold, log_in, boast, be_silent)


async def attack(address: str, context: ssl.SSLContext, number: int, until: float) -> int:
    host, _, port = address.rpartition(":")
    attempts = 0
    while time.monotonic() < until:
        act = ATTACKS[(number + attempts) % len(ATTACKS)]
        attempts += 1
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            # Some connections send no TLS handshake.
            tls = None if number % 10 == 9 else context
            reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
            try:
                limit_s = max(0.0, min(ANSWER_LIMIT_S, until - time.monotonic()))
                await asyncio.wait_for(act(writer.write, reader.read), limit_s)
            finally:
                writer.transport.abort()
        await asyncio.sleep(PAUSE_S)
    return attempts


async def main(address: str, ca: str, seconds: str, connections: str) -> None:
    context = ssl.create_default_context(cafile=ca)
    until = time.monotonic() + float(seconds)
    attempts = await asyncio.gather(*(attack(address, context, number, until) for number in range(int(connections))))
    print(sum(attempts))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
