"""The notebooks of examples/ run in a real kernel, from top to bottom, and show a bar, a table and a curve."""

import json
import subprocess

import pytest
from harness.workspace import REPOSITORY
from sdk.conftest import with_package

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

NOTEBOOKS = sorted((REPOSITORY / "examples" / "notebooks").glob("*.ipynb"))
LIMIT_S = 300.0


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(workspace, programs, notebook):
    done = workspace.root / notebook.name
    argv = [str(programs / "jupyter-execute"), "--kernel_name=python3", f"--output={done}", str(notebook)]
    env = with_package(workspace, MPLBACKEND="module://matplotlib_inline.backend_inline", HOME=str(workspace.root))
    told = subprocess.run(argv, env=env, cwd=workspace.root, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert told.returncode == 0, told.stderr[-6000:]
    outputs = [output for cell in json.loads(done.read_text())["cells"] for output in cell.get("outputs", [])]
    shown = [(kind, "".join(data)) for output in outputs for kind, data in output.get("data", {}).items()]
    assert any(kind == "text/html" and "<progress" in data and "completed" in data for kind, data in shown), "the bar"
    assert any(kind == "text/html" and "<table" in data for kind, data in shown), "the table"
    if notebook.stem == "your-own-app":
        [text] = ["".join(output["text"]) for output in outputs if "accuracy on data" in "".join(output.get("text", ""))]
        assert float(text.split()[-1]) > 0.9
    else:
        assert any(kind == "image/png" for kind, _ in shown), "the curve"


def test_notebooks_are_kept_without_what_they_showed():
    assert len(NOTEBOOKS) == 3
    for notebook in NOTEBOOKS:
        cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
        assert not [cell for cell in cells if cell["outputs"] or cell["execution_count"]], notebook.name
