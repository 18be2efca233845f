"""A child process in its own process group, with its output in a file, and ways to watch, stop and kill it.

Every child has a mark in its environment, which its descendants inherit. So processes that outlive their parent on purpose (a
ServerApp whose SuperLink was killed) are found and killed by pid at the end of a test.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

from harness.waiting import NotInTime, wait_for

# A locale variable: apps receive listed variables only, and these are listed. Not a variable of Trellis: the local driver removes
# those from the processes it starts.
MARK = "LC_MARK_OF_TRELLIS_TEST"
STOP_LIMIT_S = 15.0
KILL_LIMIT_S = 10.0


class Process:
    """A started command. `name` is used in messages and as the name of the log file."""

    def __init__(self, name: str, argv: list[str], log: Path, env: dict[str, str], cwd: Path | None = None):
        self.name = name
        self.argv = argv
        self.log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._child.poll()

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_exit(self, limit_s: float) -> int:
        try:
            return self._child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise NotInTime(f"{self.name} (pid {self.pid}) still runs after {limit_s:g} s\n{tail(self.log)}") from None

    def wait_line(self, pattern: str, limit_s: float) -> re.Match[str]:
        """Waits until a line of the output matches; fails at once if the process exits first."""
        expression = re.compile(pattern, re.MULTILINE)

        def look() -> re.Match[str] | None:
            ended = not self.alive
            found = expression.search(self.output())
            if found is None and ended:
                raise NotInTime(f"{self.name} exited with {self.exit_code} before it printed {pattern!r}\n{tail(self.log)}")
            return found

        return wait_for(f"{self.name} to say {pattern!r}", look, limit_s)

    def terminate(self) -> None:
        """Sends SIGTERM to this process only, without waiting."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    def stop(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Sends SIGTERM and waits; fails the test if the process does not exit."""
        self.terminate()
        return self.wait_exit(limit_s)

    def kill(self) -> None:
        """Sends kill -9 to this process only; its children continue."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        self._child.wait(KILL_LIMIT_S)

    def kill_group(self) -> None:
        """Sends kill -9 to the process group, as in a power failure."""
        assert self.alive, f"{self.name} had already exited with {self.exit_code}"
        os.killpg(self.pid, signal.SIGKILL)
        self._child.wait(KILL_LIMIT_S)

    def reap(self) -> None:
        """Collects the exit code of a process that was killed by other means."""
        self._child.wait(KILL_LIMIT_S)


def tail(log: Path, lines: int = 30) -> str:
    if not log.exists():
        return f"--- {log.name}: no output"
    kept = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"--- {log.name}, last {len(kept)} lines:", *kept])


def pid_exists(pid: int) -> bool:
    """Whether a process with this pid exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def peak_memory_bytes(pid: int) -> int:
    """The peak resident memory of a running process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def wait_pid_file(path: Path, limit_s: float) -> int:
    """The pid that an app writes to `path` when it starts."""
    wait_for(f"a process to write {path.name}", path.exists, limit_s)
    return int(path.read_text())


def marked_pids(mark: str) -> list[int]:
    """All processes of this machine that inherited the mark of a test."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return found


def marked_commands(mark: str, command: str) -> list[int]:
    """Those that run `command`."""
    return [pid for pid in marked_pids(mark) if pid_exists(pid) and command in command_line(pid)]


def command_line(pid: int) -> str:
    """Empty if the process has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill_marked(mark: str) -> None:
    """Kills all processes of a test, by pid, until none is found."""

    def sweep() -> bool:
        left = [pid for pid in marked_pids(mark) if pid_exists(pid)]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not left

    wait_for("the processes of a finished test to end", sweep, KILL_LIMIT_S)
