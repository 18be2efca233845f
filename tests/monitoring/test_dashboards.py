"""Dashboards as files: whole, and asking for something in every panel."""

import pytest

from monitoring.expressions import dashboards, exported, metrics_of, panels

pytestmark = pytest.mark.quick


def test_names_are_found_in_expressions():
    """Guards the yardstick itself."""
    expression = 'sum by (le, api) (rate(a_bucket{b="c"}[5m])) / ignoring(d) e:f unless on (g) h{i=~"j"} > 2 * time()'
    assert metrics_of(expression) == {"a_bucket", "e:f", "h"}
    scraped = "# HELP a x\n# TYPE a counter\na_total 1\n# TYPE b histogram\n# TYPE c gauge\n# TYPE d info\n# EOF\n"
    assert exported(scraped) == {"a_total", "b_bucket", "b_sum", "b_count", "c", "d_info"}


def test_dashboards_are_whole(deployed):
    found = dashboards(deployed)
    assert {dashboard["title"] for dashboard in found.values()} == {
        "FL Training Overview",
        "GPU Health",
        "Client Health",
    }
    for file, dashboard in found.items():
        shown = list(panels(dashboard))
        assert len({panel["id"] for panel in shown}) == len(shown), file
        for panel in shown:
            assert panel["targets"], f"{file}: {panel['title']}"
            assert all(metrics_of(target["expr"]) for target in panel["targets"]), f"{file}: {panel['title']}"
            assert panel["datasource"]["uid"] == "${datasource}", f"{file}: {panel['title']}"
