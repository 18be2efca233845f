"""The documentation is a book: every page is in it, and every link leads somewhere."""

import re

import pytest
from harness.workspace import REPOSITORY

DOCS = REPOSITORY / "docs"
README_LINES = 90
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.quick


def links(page):
    text = FENCE.sub("", page.read_text())
    return [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def pages():
    return [*sorted(DOCS.rglob("*.md")), *sorted(REPOSITORY.glob("*.md")), REPOSITORY / "tests" / "README.md"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        assert there.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name} links to {target}, and that page has no such heading"


def test_every_page_is_in_the_book():
    listed = {(DOCS / target).resolve() for target in links(DOCS / "SUMMARY.md")}
    there = {page.resolve() for page in DOCS.rglob("*.md") if page.name != "SUMMARY.md"}
    # Records: their own table of contents, or the page that they are the evidence of, lists them.
    missing = sorted(page.name for page in there - listed if page.parent.name not in ("decisions", "evidence"))
    assert not missing, f"docs/SUMMARY.md does not list {', '.join(missing)}"


def test_the_readme_is_read_in_five_minutes():
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= README_LINES
