"""The page's idea of the API, web/src/api.ts, beside the published one: the same shapes with the same fields."""

import json
import re

import pytest

from harness.workspace import REPOSITORY

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

# Written once in the page, and once for each kind of entry in the OpenAPI document.
PAGE = "Page"
INTERFACE = re.compile(r"^export interface (\w+)(?:<\w+>)? \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (\w+)(\??): ", re.MULTILINE)
WORDS = re.compile(r'^export type (\w+) = ("[^;]*");', re.MULTILINE)


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict]:
    return json.loads((REPOSITORY / "docs" / "api" / "openapi.json").read_text())["components"]["schemas"]


@pytest.fixture(scope="module")
def source() -> str:
    return (REPOSITORY / "web" / "src" / "api.ts").read_text()


def told(schema: dict) -> dict[str, bool]:
    """Each field, and whether it may be left out."""
    return {name: name not in schema.get("required", []) for name in schema["properties"]}


def test_the_page_knows_the_fields_of_every_answer(schemas, source):
    known = {name: {field: bool(mark) for field, mark in FIELD.findall(body)} for name, body in INTERFACE.findall(source)}
    page = known.pop(PAGE)
    assert len(known) > 30
    assert {name: told(schemas[name]) for name in known} == known
    pages = [name for name in schemas if name.endswith(PAGE)]
    assert pages and all(told(schemas[name]) == page for name in pages)


def test_the_page_knows_every_word_of_a_state(schemas, source):
    known = {name: re.findall(r'"([^"]+)"', words) for name, words in WORDS.findall(source) if name in schemas}
    assert {"Role", "State", "RunState", "Weight"} <= set(known)
    assert {name: words_of(schemas[name]) for name in known} == {name: sorted(words) for name, words in known.items()}


def words_of(schema: dict) -> list[str]:
    """Of an enumeration, written as one list or as a choice of single words."""
    found = schema.get("enum") or [word for one in schema["oneOf"] for word in one["enum"]]
    return sorted(found)
