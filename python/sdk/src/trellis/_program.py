"""The program `trellis`: where it is, how it is called, and what it complains about. Starts nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ._target import AnyPath, Target
from .errors import NoProgram, ProgramFailed, UnexpectedAnswer
from .types import Detail, Scalar

_NAME = "trellis"
_VARIABLE = "TRELLIS_BIN"
_TO_DO = "to do: "
_NUMBERED = re.compile(r" *\d+\. ")
_SETTING = re.compile(r"--set ([^:]+): ")
# Settings of the caller that would name another server than the client's.
_OTHER_PLACES = ("TRELLIS_SUPERLINK", "TRELLIS_SERVER", "TRELLIS_FEDERATION", "TRELLIS_TOKEN")


@dataclass(frozen=True)
class Finished:
    """A process that ended."""

    code: int
    stdout: str
    stderr: str


def find(program: Optional[AnyPath] = None) -> str:
    """The given one, that of TRELLIS_BIN, the one installed with this package, or the one on PATH."""
    for given, source in ((program, "program="), (os.environ.get(_VARIABLE) or None, _VARIABLE)):
        if given is not None:
            if not os.access(given, os.X_OK):
                raise NoProgram(f"{source} names {os.fspath(given)}, which is no program that can be started")
            return str(Path(given).absolute())
    for place in _scripts():
        if os.access(place / _NAME, os.X_OK):
            return str(place / _NAME)
    found = shutil.which(_NAME)
    if found is None:
        raise NoProgram(
            "the program `trellis` is not installed: `pip install trellis-fl` brings it on Linux (x86_64); elsewhere "
            f"put it on PATH, or name it in {_VARIABLE}"
        )
    return found


def _scripts() -> Iterator[Path]:
    """Where pip puts the program of this package."""
    yield Path(sysconfig.get_path("scripts"))
    user = f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        yield Path(sysconfig.get_path("scripts", user))
    # pip install --target
    yield Path(__file__).resolve().parent.parent / "bin"


def environment(home: Optional[AnyPath] = None) -> dict[str, str]:
    """For commands about the server of this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHER_PLACES)}
    return {**kept, "TRELLIS_HOME": str(Path(home).absolute())} if home is not None else kept


def up(program: str, name: str, nodes: Optional[int], file: Optional[AnyPath], python: Optional[AnyPath]) -> list[str]:
    """The command that starts a federation."""
    argv = [program, "up", name, "--detach", "-o", "json"]
    if nodes is not None:
        argv += ["--nodes", str(nodes)]
    if file is not None:
        argv += ["--file", os.fspath(file)]
    if python is not None:
        argv += ["--python", os.fspath(python)]
    return argv


def python_with_flower() -> Optional[str]:
    """This interpreter, if it has flwr. Apps then find what is installed beside it, without an activated environment."""
    return sys.executable if sys.executable and importlib.util.find_spec("flwr") is not None else None


def submit(
    program: str,
    target: Target,
    federation: str,
    app: Path,
    settings: Mapping[str, Scalar],
    native_server: Optional[bool],
) -> list[str]:
    """The command that bundles the app in a directory and starts it. The token is not in it: it goes to standard input."""
    argv = [program, "run", str(app), "--federation", federation, "--detach", "-o", "json"]
    argv += ["--server", target.url, "--server-token-file", "-"]
    if target.root_certificates is not None:
        argv += ["--server-root-certificates", str(target.root_certificates)]
    if target.allow_insecure_network:
        argv.append("--server-allow-insecure-network")
    if native_server is not None:
        argv.append("--native-server" if native_server else "--app-server")
    for key, value in settings.items():
        argv += ["--set", f"{key}={_text(value)}"]
    return argv


def run_id(finished: Finished) -> str:
    """The run that was started."""
    for line in finished.stdout.splitlines():
        told = _json(line)
        if told.get("event") == "started":
            return str(told["run_id"])
    raise UnexpectedAnswer("`trellis run` did not tell the run; is the program as new as this package?")


def up_url(finished: Finished) -> str:
    """The server of the federation that is up."""
    url = _json(finished.stdout).get("url")
    if not isinstance(url, str):
        raise UnexpectedAnswer("`trellis up` did not tell its server; is the program as new as this package?")
    return url


def _json(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _text(value: Scalar) -> str:
    """As the command line reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def failed(called: str, finished: Finished) -> ProgramFailed:
    """The error of a command, from the report that the program prints last."""
    lines = finished.stderr.rstrip().splitlines()
    begin = next((at for at in reversed(range(len(lines))) if lines[at].startswith(f"{called}: ")), None)
    if begin is None:
        return ProgramFailed(f"`{called}` ended with {finished.code}: {finished.stderr.strip() or 'it said nothing'}")
    problems = list(_problems([lines[begin][len(called) + 2 :], *lines[begin + 1 :]]))
    if len(problems) == 1 and not problems[0].path:
        [problem] = problems
        advice = f" ({_TO_DO}{problem.advice})" if problem.advice else ""
        return ProgramFailed(f"{problem.what}{advice}", ())
    return ProgramFailed(f"`{called}` was refused", problems)


def _problems(lines: list[str]) -> Iterator[Detail]:
    """One without a number, or several with."""
    numbered = any(_NUMBERED.match(line) for line in lines)
    what, advice = "", ""
    for line in lines[1:] if numbered else lines:
        text = line.strip()
        match = _NUMBERED.match(line)
        if match and numbered:
            if what:
                yield _detail(what, advice)
            what, advice = line[match.end() :].strip(), ""
        elif text.startswith(_TO_DO):
            advice = text[len(_TO_DO) :]
        elif text and not advice:
            what = f"{what} {text}".strip()
    if what:
        yield _detail(what, advice)


def _detail(what: str, advice: str) -> Detail:
    """A setting is called as in the answers of the server."""
    match = _SETTING.match(what)
    if match is None:
        return Detail(what=what, advice=advice)
    return Detail(what=what[match.end() :], advice=advice, path=f"settings.{match.group(1)}")
