"""Dashboards and rules name only what a SuperLink exports. Both are files: nobody would notice a misspelt name."""

import urllib.request

import pytest

from harness.superlink import LinkOptions, Superlink
from monitoring.expressions import FOREIGN, alerts, dashboards, exported, metrics_of, panels, queries

SCRAPE_LIMIT_S = 10.0

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]


def test_names_are_found_in_expressions():
    """Guards the yardstick itself."""
    expression = 'sum by (le, api) (rate(a_bucket{b="c"}[5m])) / ignoring(d) e:f unless on (g) h{i=~"j"} > 2 * time()'
    assert metrics_of(expression) == {"a_bucket", "e:f", "h"}
    scraped = "# HELP a x\n# TYPE a counter\na_total 1\n# TYPE b histogram\n# TYPE c gauge\n# TYPE d info\n# EOF\n"
    assert exported(scraped) == {"a_total", "b_bucket", "b_sum", "b_count", "c", "d_info"}


def test_only_what_is_exported_is_asked_for(workspace, deployed):
    superlink = Superlink(workspace, LinkOptions()).start()
    address = f"http://{superlink.http_address}/metrics"
    with urllib.request.urlopen(address, timeout=SCRAPE_LIMIT_S) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        known = exported(answer.read().decode())
    assert {"fl_training_status", "trellis_build_info", "process_cpu_seconds_total"} <= known

    asked = {name: alert["expr"] for name, alert in alerts(deployed).items()}
    for file, dashboard in dashboards(deployed).items():
        asked |= {f"{file}: {panel}: {query}": query for panel, query in queries(dashboard)}
    assert len(asked) > 30
    for place, expression in asked.items():
        named = {name for name in metrics_of(expression) if not FOREIGN.fullmatch(name)}
        assert named <= known, f"{place}: {named - known} is not exported"
        assert metrics_of(expression), place


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
            assert panel["datasource"]["uid"] == "${datasource}", f"{file}: {panel['title']}"
