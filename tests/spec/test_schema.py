"""The JSON Schema that `trellis schema` prints, judged by an independent validator and by a reader of YAML 1.1."""

import json
import subprocess

import pytest

from harness.validator import judge
from harness.workspace import REPOSITORY, trellis_binary
from provision import CannotBeHad

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

SAMPLES = REPOSITORY / "crates" / "control" / "spec" / "tests"
# Wrong by a single field alone, so that the schema must see it too. Other samples are wrong in how fields fit together.
WRONG_BY_A_FIELD = ("bare", "misspelt", "placeholders", "range", "runtime", "scaling", "types")
OF_THE_OPERATOR = "flwr.exalsius.ai"


@pytest.fixture(scope="module")
def schema() -> dict:
    done = subprocess.run([trellis_binary(), "schema"], capture_output=True, text=True, timeout=30, check=True)
    return json.loads(done.stdout)


def judged(schema: dict, documents: dict[str, str]) -> dict[str, list[str]]:
    try:
        return judge(schema, documents)
    except CannotBeHad as why:
        pytest.skip(f"jsonschema cannot be had here: {why}")


def ours(*folders: str) -> dict[str, str]:
    """Good documents of our own, by name."""
    files = [path for folder in folders for path in sorted((REPOSITORY / folder).iterdir())]
    found = {str(path.relative_to(REPOSITORY)): path.read_text() for path in files if path.suffix in (".yaml", ".json")}
    return {name: text for name, text in found.items() if f"apiVersion: {OF_THE_OPERATOR}" not in text}


def test_the_schema_is_the_published_one(schema):
    assert schema == json.loads((REPOSITORY / "docs" / "schema" / "federation.json").read_text())


def test_good_documents_are_good(schema):
    documents = ours("examples", "crates/control/spec/tests/canonical")
    assert len(documents) >= 10
    assert judged(schema, documents) == {name: [] for name in documents}


def test_bad_documents_are_bad(schema):
    samples = [path for path in (SAMPLES / "bad").iterdir() if path.suffix != ".txt" and path.stem in WRONG_BY_A_FIELD]
    documents = {path.stem: path.read_text() for path in samples}
    assert sorted(documents) == sorted(WRONG_BY_A_FIELD)
    told = judged(schema, documents)
    assert all(told.values()), told


def test_every_unknown_field_is_seen(schema):
    """A field too many, in every mapping of a document whose fields are known."""
    document = json.loads((REPOSITORY / "examples" / "as-json.json").read_text())
    variants = {}

    def spoil(node: object, path: str) -> None:
        if isinstance(node, list):
            for index, item in enumerate(node):
                spoil(item, f"{path}[{index}]")
        elif isinstance(node, dict) and not path.endswith("nodeConfig"):
            node["stranger"] = 1
            variants[path] = json.dumps(document)
            del node["stranger"]
            for name, value in list(node.items()):
                spoil(value, f"{path}.{name}")

    spoil(document, "$")
    told = judged(schema, variants)
    assert len(told) == 5
    refused = "Additional properties are not allowed ('stranger' was unexpected)"
    assert told == {path: [f"{path}: {refused}"] for path in told}
