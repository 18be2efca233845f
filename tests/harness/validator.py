"""An independent judge of documents: PyPI's jsonschema and PyYAML, in an environment of their own in the test cache."""

import json
import subprocess

from harness.environment import environment

PACKAGES = ("jsonschema==4.26.0", "PyYAML==6.0.3")
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
    command = [str(environment("validator", *PACKAGES) / "python"), "-c", JUDGE]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=VALIDATE_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
