"""One child process in its own process group, its output in a file, and ways to watch, stop and kill it.

Every child carries a mark in its environment that its descendants inherit, so that also those which outlive their
parent on purpose (a ServerApp whose SuperLink was killed) are found and ended, by pid, when a test is over.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

from harness.waiting import NotInTime, wait_for

# The name of a locale variable: apps get listed variables only, whoever starts their SuperLink, and those are listed. Not one
# of the variables of Trellis: the local driver keeps those from the parts that it starts.
MARK = "LC_MARK_OF_TRELLIS_TEST"
STOP_LIMIT_S = 15.0
KILL_LIMIT_S = 10.0


class Process:
    """A started command. `name` appears in messages and as the log file's name."""

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
        """None while it runs; negative when a signal ended it."""
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
        """Wait until a line of the output matches; fail at once if the process ends first."""
        expression = re.compile(pattern, re.MULTILINE)

        def look() -> re.Match[str] | None:
            ended = not self.alive
            found = expression.search(self.output())
            if found is None and ended:
                raise NotInTime(f"{self.name} ended with {self.exit_code} before it said {pattern!r}\n{tail(self.log)}")
            return found

        return wait_for(f"{self.name} to say {pattern!r}", look, limit_s)

    def terminate(self) -> None:
        """Ask it to end (SIGTERM, to this process only) without waiting."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    def stop(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Ask it to end and wait; a process that does not is a failure of the test."""
        self.terminate()
        return self.wait_exit(limit_s)

    def kill(self) -> None:
        """kill -9 of this process alone: its children, if any, are left as they are."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        self._child.wait(KILL_LIMIT_S)

    def kill_group(self) -> None:
        """kill -9 of the process and its children at once, as when a machine loses power."""
        assert self.alive, f"{self.name} had already ended with {self.exit_code}"
        os.killpg(self.pid, signal.SIGKILL)
        self._child.wait(KILL_LIMIT_S)

    def reap(self) -> None:
        """Collect the exit of a process that was ended by other means."""
        self._child.wait(KILL_LIMIT_S)


def tail(log: Path, lines: int = 30) -> str:
    if not log.exists():
        return f"--- {log.name}: no output"
    kept = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"--- {log.name}, last {len(kept)} lines:", *kept])


def pid_exists(pid: int) -> bool:
    """Whether a process with that id exists and is not merely a zombie waiting for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def peak_memory_bytes(pid: int) -> int:
    """The most that a living process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def wait_pid_file(path: Path, limit_s: float) -> int:
    """The process id that an app writes to `path` when it starts."""
    wait_for(f"a process to write {path.name}", path.exists, limit_s)
    return int(path.read_text())


def marked_pids(mark: str) -> list[int]:
    """All processes on this machine that inherited `mark` from a test."""
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
    """Those of them that run `command`."""
    return [pid for pid in marked_pids(mark) if pid_exists(pid) and command in command_line(pid)]


def command_line(pid: int) -> str:
    """Empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill_marked(mark: str) -> None:
    """End every process a test left behind, by pid, until none is found."""

    def sweep() -> bool:
        left = [pid for pid in marked_pids(mark) if pid_exists(pid)]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not left

    wait_for("the processes of a finished test to end", sweep, KILL_LIMIT_S)
