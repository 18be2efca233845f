"""Network namespaces of a test: machines with their own network, as far as TCP is concerned.

A namespace lives as long as the process that holds it, which ends with its test: nothing has a machine-wide name, and
nothing is left behind. Needs root; otherwise raises `CannotBeHad`.
"""

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from harness.waiting import wait_for
from harness.workspace import Workspace
from provision import CannotBeHad

CLONE_NEWNET = 0x40000000
MADE_LIMIT_S = 10.0
COMMAND_LIMIT_S = 10.0
CONNECT_LIMIT_S = 10.0
# In the kernel's connection tables: the state of open connections, and the prefix of IPv4 addresses in IPv6.
ESTABLISHED = "01"
MAPPED = "0000000000000000FFFF0000"

T = TypeVar("T")


class Namespace:
    """A network with only a loopback interface."""

    def __init__(self, workspace: Workspace, name: str):
        self.name = name
        for tool in ("unshare", "nsenter", "ip", "sysctl"):
            if shutil.which(tool) is None:
                raise CannotBeHad(f"{tool} is missing")
        self._holder = workspace.start(f"namespace-{name}", ["unshare", "--net", "sleep", "infinity"])
        wait_for(f"the network namespace {name}", self._is_made, MADE_LIMIT_S)
        self.run("ip", "link", "set", "lo", "up")

    def _is_made(self) -> bool:
        if not self._holder.alive:
            raise CannotBeHad(f"no network namespace can be created: {self._holder.output().strip()}")
        try:
            return os.readlink(self._file) != os.readlink("/proc/self/ns/net")
        except OSError:
            return False

    @property
    def pid(self) -> int:
        """The pid of a process in it."""
        return self._holder.pid

    @property
    def _file(self) -> str:
        return f"/proc/{self._holder.pid}/ns/net"

    def command(self, argv: list[str]) -> list[str]:
        """The command inside the namespace. It replaces `nsenter`, so the process keeps its pid."""
        return ["nsenter", f"--net={self._file}", "--", *argv]

    def run(self, *argv: str, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
        """Runs a command inside; returns its output."""
        done = subprocess.run(
            self.command(list(argv)),
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise CannotBeHad(f"{' '.join(argv)} in namespace {self.name}: {done.stderr.strip()}")
        return done.stdout

    def inside(self, make: Callable[[], T]) -> T:
        """Calls a function in the namespace; its sockets stay there."""
        with ThreadPoolExecutor(max_workers=1, initializer=self._enter) as thread:
            return thread.submit(make).result()

    def connect(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        return self.inside(lambda: socket.create_connection((host, int(port)), CONNECT_LIMIT_S))

    def _enter(self) -> None:
        """Moves only the calling thread."""
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(self._file, os.O_RDONLY)
        try:
            if libc.setns(descriptor, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"namespace {self.name} cannot be entered")
        finally:
            os.close(descriptor)

    def connections(self, address: str) -> set[int]:
        """The local ports of open connections to an IPv4 address; there must be at least one."""
        wanted = (_as_in_proc(address), MAPPED + _as_in_proc(address))
        rows = [row for table in ("tcp", "tcp6") for row in self._table(table)]
        found = {_port(own) for own, peer, state in rows if peer in wanted and state == ESTABLISHED}
        assert found, f"namespace {self.name} has no connection to {address}"
        return found

    def _table(self, name: str) -> list[tuple[str, str, str]]:
        lines = Path(f"/proc/{self.pid}/net/{name}").read_text().splitlines()[1:]
        return [tuple(line.split()[1:4]) for line in lines]


def _as_in_proc(address: str) -> str:
    """The kernel prints the four bytes as a native number; x86 and ARM are little-endian."""
    host, _, port = address.rpartition(":")
    return f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{int(port):04X}"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
