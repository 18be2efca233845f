"""Validates documents with jsonschema and PyYAML from PyPI, in their own environment in the test cache."""

import json
import subprocess

from harness.environment import environment

PACKAGES = ("jsonschema==4.26.0", "PyYAML==6.0.3")
VALIDATE_TIMEOUT_S = 60

# Reads {"schema": ..., "documents": {name: text}} and writes {name: [error, ...]}.
JUDGE = """
import json, sys
import yaml
from jsonschema import Draft202012Validator

asked = json.load(sys.stdin)
Draft202012Validator.check_schema(asked["schema"])
validator = Draft202012Validator(asked["schema"])
errors = {}
for name, text in asked["documents"].items():
    found = [error for document in yaml.safe_load_all(text) for error in validator.iter_errors(document)]
    errors[name] = [f"{error.json_path}: {error.message}" for error in found]
json.dump(errors, sys.stdout)
"""


def judge(schema: object, documents: dict[str, str]) -> dict[str, list[str]]:
    """The schema errors of each document; also validates the schema itself."""
    asked = json.dumps({"schema": schema, "documents": documents})
    command = [str(environment("validator", *PACKAGES) / "python"), "-c", JUDGE]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=VALIDATE_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
