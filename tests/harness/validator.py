"""An independent judge of documents: PyPI's jsonschema and PyYAML, in an environment of their own in the test cache."""

import hashlib
import json
import subprocess
import sys
import venv
from pathlib import Path

from provision import CannotBeHad, cache_dir, locked

PACKAGES = ("jsonschema==4.26.0", "PyYAML==6.0.3")
STAMP = ".trellis-stamp"
PIP_TIMEOUT_S = 300
VALIDATE_TIMEOUT_S = 60

# Reads {"schema": ..., "documents": {name: text}} and writes {name: [what is wrong, ...]}.
JUDGE = """
import json, sys
import yaml
from jsonschema import Draft202012Validator

asked = json.load(sys.stdin)
Draft202012Validator.check_schema(asked["schema"])
validator = Draft202012Validator(asked["schema"])
told = {}
for name, text in asked["documents"].items():
    found = [error for document in yaml.safe_load_all(text) for error in validator.iter_errors(document)]
    told[name] = [f"{error.json_path}: {error.message}" for error in found]
json.dump(told, sys.stdout)
"""


def judge(schema: object, documents: dict[str, str]) -> dict[str, list[str]]:
    """What is wrong with each document by the schema; also checks the schema itself."""
    asked = json.dumps({"schema": schema, "documents": documents})
    command = [str(_python()), "-c", JUDGE]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=VALIDATE_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _python() -> Path:
    directory = cache_dir() / "validator"
    stamp = hashlib.sha256("\n".join(PACKAGES).encode()).hexdigest()
    ready = directory / STAMP
    with locked(cache_dir() / "validator.lock"):
        if not ready.is_file() or ready.read_text() != stamp:
            _build(directory)
            ready.write_text(stamp)
    return directory / "bin" / "python"


def _build(directory: Path) -> None:
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(directory)
    command = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES]
    try:
        done = subprocess.run(command, stdout=sys.stderr, timeout=PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"pip did not finish within {PIP_TIMEOUT_S} s") from late
    if done.returncode != 0:
        raise CannotBeHad(f"pip ended with {done.returncode}; its messages are above")
