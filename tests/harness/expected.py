"""The results of an app in an all-official federation, measured once and cached. The key covers the app's sources, the settings
and the Flower version.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.acts import play
from harness.federation import APPS, OFFICIAL, Federation, Shape
from harness.waiting import NotInTime
from harness.workspace import Workspace
from provision import DEFAULT_VERSION, cache_dir, releases

TRIES = 3


def official_digest(recompute: bool = False, **run_config: object) -> str:
    """The SHA-256 of numpy_fedavg's final weights."""

    def measure() -> dict:
        with _official(nodes=int(run_config.get("nodes", Shape.nodes))) as federation:
            run_id = federation.cli.submit(result_path=federation.result_path(), **run_config)
            state = federation.wait_finished(run_id)
            assert state.status == "finished:completed", f"the official SuperLink itself failed: {state}"
            return federation.result() | {"run-config": run_config}

    key = f"{releases()[DEFAULT_VERSION].flwr} {sorted(run_config.items())}"
    return _kept("numpy_fedavg", key, measure, recompute)["sha256"]


def official_outcomes(script: str, version: str, recompute: bool = False) -> list[str]:
    """The outcome of each act of a script with a SuperNode of some release."""

    def measure() -> dict:
        everything = {"fleet": (version,), "cli": version, "runtime": version, "official": version}
        with _official(app="acts", nodes=1, **everything) as federation:
            return {"script": script, "outcomes": [act.outcome for act in play(federation, script)]}

    return _kept("acts", f"{releases()[version].flwr} {script}", measure, recompute)["outcomes"]


@contextmanager
def _official(**wanted: object) -> Iterator[Federation]:
    with tempfile.TemporaryDirectory(prefix="trellis-official-") as directory:
        workspace = Workspace(Path(directory))
        try:
            yield Federation(workspace, Shape(kind=OFFICIAL, **wanted)).start()
        finally:
            workspace.close()


def _kept(app: str, settings: str, measure: Callable[[], dict], recompute: bool) -> dict:
    kept = cache_dir() / "expected" / f"{_key(APPS / app, settings)}.json"
    if recompute or not kept.exists():
        outcome = _measured(measure)
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(".draft")
        draft.write_text(json.dumps(outcome, indent=1))
        draft.replace(kept)
    return json.loads(kept.read_text())


def _measured(measure: Callable[[], dict]) -> dict:
    """Retries: official federations hang now and then, which is not what the tests are about."""
    for _ in range(TRIES - 1):
        try:
            return measure()
        except NotInTime as late:
            print(f"an official federation hung; measuring again: {late}", file=sys.stderr)
    return measure()


def _key(app: Path, settings: str) -> str:
    sha = hashlib.sha256(settings.encode())
    for path in sorted([*app.rglob("*.py"), *app.rglob("*.toml")]):
        sha.update(path.relative_to(app).as_posix().encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()[:32]
