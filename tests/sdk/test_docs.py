"""The examples of the READMEs and of docs/python.md work as they are printed, from top to bottom."""

import re

import pytest
from book.commands import blocks
from harness.federation import APPS
from harness.workspace import REPOSITORY
from sdk.conftest import SDK

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]
README_LINES = 10


@pytest.mark.parametrize("page", [REPOSITORY / "docs" / "python.md", SDK / "README.md"], ids=lambda page: page.stem)
def test_examples_work_as_printed(workspace, script, page):
    (workspace.root / "my-app").symlink_to(workspace.copy_app(APPS / "numpy_fedavg"))
    done = script("\n".join(blocks(page, "python")))
    if page.stem == "python":
        rounds = re.findall(r"^(\d) ([\d.]+) ([\d.]+)$", done.stdout, re.MULTILINE)
        assert [row[0] for row in rounds] == list("12345"), done.stdout
        assert "now finished" in done.stdout and "spec.nodez" in done.stdout


def test_the_script_of_the_readme_trains_and_plots(workspace, script, programs):
    [example] = blocks(REPOSITORY / "README.md", "python")
    assert len([line for line in example.splitlines() if line]) <= README_LINES
    script(example, python=str(programs / "python"))
    assert (workspace.root / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_names_every_error():
    import trellis

    text = (REPOSITORY / "docs" / "python.md").read_text()
    errors = [name for name in trellis.__all__ if isinstance(getattr(trellis, name), type)]
    errors = [name for name in errors if issubclass(getattr(trellis, name), trellis.TrellisError) and name != "Refused"]
    assert len(errors) > 8 and not [name for name in errors if name not in text]
