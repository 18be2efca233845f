"""The weights the official SuperLink produces: the yardstick, computed once and kept in the test cache.

The key covers the app's sources, its settings and the Flower version, so a changed app is measured anew.
"""

import hashlib
import json
import tempfile
from pathlib import Path

from harness.federation import APPS, OFFICIAL, Federation, Shape
from harness.workspace import Workspace
from provision import DEFAULT_VERSION, cache_dir, releases


def official_digest(recompute: bool = False, **run_config: object) -> str:
    """SHA-256 of numpy_fedavg's final weights under the official SuperLink."""
    kept = cache_dir() / "expected" / f"{_key(run_config)}.json"
    if recompute or not kept.exists():
        outcome = _measure(run_config)
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(".draft")
        draft.write_text(json.dumps(outcome | {"run-config": run_config}, indent=1))
        draft.replace(kept)
    return json.loads(kept.read_text())["sha256"]


def _measure(run_config: dict[str, object]) -> dict:
    with tempfile.TemporaryDirectory(prefix="trellis-official-") as directory:
        workspace = Workspace(Path(directory))
        try:
            nodes = int(run_config.get("nodes", Shape.nodes))
            federation = Federation(workspace, Shape(kind=OFFICIAL, nodes=nodes)).start()
            run_id = federation.cli.submit(result_path=federation.result_path(), **run_config)
            state = federation.wait_finished(run_id)
            assert state.status == "finished:completed", f"the official SuperLink itself failed: {state}"
            return federation.result()
        finally:
            workspace.close()


def _key(run_config: dict[str, object]) -> str:
    sha = hashlib.sha256(f"{releases()[DEFAULT_VERSION].flwr} {sorted(run_config.items())}".encode())
    app = APPS / "numpy_fedavg"
    for path in sorted([*app.rglob("*.py"), *app.rglob("*.toml")]):
        sha.update(path.relative_to(app).as_posix().encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()[:32]
