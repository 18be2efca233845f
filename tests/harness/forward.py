#!/usr/bin/env python3
"""Forwards TCP connections: `forward.py FROM TO`, both `host:port`. Prints `ready` when it listens."""

import asyncio
import contextlib
import sys

CHUNK_BYTES = 1 << 16


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def main(source: str, target: str) -> None:
    host, _, port = target.rpartition(":")

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    own_host, _, own_port = source.rpartition(":")
    server = await asyncio.start_server(lead, own_host, int(own_port))
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
