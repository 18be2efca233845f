"""What an app tries: each attempt returns a text, or raises OSError if the system refuses it."""

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

CONNECT_LIMIT_S = 5.0
PTRACE_ATTACH = 16
CLONE_NEWUSER = 0x10000000

libc = ctypes.CDLL(None, use_errno=True)


def carry_out(script: str) -> dict[str, str]:
    """What came of each attempt of a script: `done` with what it found, or `refused` and why."""
    return {word: _try(word) for word in script.split()}


def _try(word: str) -> str:
    act, _, argument = word.partition(":")
    try:
        return f"done {ATTEMPTS[act](argument)}".strip()
    except OSError as error:
        return f"refused {type(error).__name__}"


def read(path: str) -> str:
    with open(path, "rb") as file:
        file.read(1)
    return ""


def memory(pid: str) -> str:
    """Read a byte of the memory of a process."""
    start = int(Path(f"/proc/{pid}/maps").read_text().partition("-")[0], 16)
    with open(f"/proc/{pid}/mem", "rb") as file:
        file.seek(start)
        file.read(1)
    return ""


def names(path: str) -> str:
    os.listdir(path)
    return ""


def write(path: str) -> str:
    with open(path, "w", encoding="utf-8") as file:
        file.write("x")
    return ""


def empty(path: str) -> str:
    os.truncate(path, 0)
    return ""


def remove(path: str) -> str:
    os.unlink(path)
    return ""


def send_signal(pid: str) -> str:
    os.kill(int(pid), signal.SIGCONT)
    return ""


def trace(pid: str) -> str:
    return _checked(libc.ptrace(PTRACE_ATTACH, int(pid), 0, 0))


def unshare(_: str) -> str:
    return _checked(libc.unshare(CLONE_NEWUSER))


def connect(port: str) -> str:
    socket.create_connection(("127.0.0.1", int(port)), CONNECT_LIMIT_S).close()
    return ""


def datagram(port: str) -> str:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(port)))
    return ""


def ask(path: str) -> str:
    """Ask the node for its status through its socket."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(CONNECT_LIMIT_S)
        peer.connect(path)
        peer.sendall(b"GET /status HTTP/1.1\r\nHost: node\r\n\r\n")
        if not peer.recv(1):
            raise ConnectionResetError
    return ""


def variable(name: str) -> str:
    if name not in os.environ:
        raise PermissionError(name)
    return ""


def user(_: str) -> str:
    return str(os.getuid())


def status(name: str) -> str:
    """A line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def honest(_: str) -> str:
    """What apps do all the time."""
    Path("results").write_text("x")
    Path(Path.home(), "cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "file").write_text("x")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    said = subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True, check=True)
    assert said.stdout == "7\n"
    return ""


def _checked(result: int) -> str:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return ""


ATTEMPTS: dict[str, Callable[[str], str]] = {
    "read": read,
    "memory": memory,
    "list": names,
    "write": write,
    "empty": empty,
    "remove": remove,
    "signal": send_signal,
    "trace": trace,
    "unshare": unshare,
    "connect": connect,
    "datagram": datagram,
    "ask": ask,
    "variable": variable,
    "user": user,
    "status": status,
    "honest": honest,
}
