"""A program on its own pseudo-terminal: sends keys, reads output, and checks the terminal's state at the end."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from pathlib import Path

from harness.waiting import wait_for

ENTERS, LEAVES = "\x1b[?1049h", "\x1b[?1049l"
SHOW_LIMIT_S = 30.0
END_LIMIT_S = 10.0


class Screen:
    """Starts `argv`; `text` is its output so far."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path, columns: int = 80, lines: int = 24):
        self._ours, theirs = pty.openpty()
        self.resize(columns, lines, theirs)
        self._before = termios.tcgetattr(theirs)
        self._theirs = theirs
        env = env | {"TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        self.text = ""

    def resize(self, columns: int, lines: int, end: int | None = None) -> None:
        fcntl.ioctl(end or self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if end is None:
            os.kill(self._process.pid, signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def kill(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def wait(self, *words: str) -> None:
        """Waits until all of these were written. A frame is written in pieces, so these are single words."""
        wait_for(f"{words} on the screen", lambda: all(word in self._read() for word in words), SHOW_LIMIT_S)

    def forget(self) -> None:
        """Discards the output so far."""
        self._read()
        self.text = ""

    def wait_end(self) -> int:
        def ended() -> int | None:
            self._read()
            return self._process.poll()

        return wait_for("the program to end", ended, END_LIMIT_S)

    @property
    def is_as_before(self) -> bool:
        """Whether echo, line mode and the main screen are restored."""
        return termios.tcgetattr(self._theirs) == self._before and self._read().rfind(LEAVES) > self.text.rfind(ENTERS)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self) -> str:
        while select.select([self._ours], [], [], 0)[0]:
            self.text += os.read(self._ours, 1 << 16).decode(errors="replace")
        return self.text
