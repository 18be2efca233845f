"""What dashboards and rules ask Prometheus for: their expressions, and the metrics named in them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

# GPUs are measured by NVIDIA's exporter; `up` is Prometheus' own.
FOREIGN = re.compile(r"DCGM_FI_DEV_\w+|up")
# What Grafana puts in place of its variables.
VARIABLES = {"$instance": ".*", "$__rate_interval": "20s"}

_NOT_METRICS = [r'"[^"]*"', r"\{[^}]*\}", r"\[[^\]]*\]", r"\b(?:by|on|without|ignoring)\s*\([^)]*\)"]
_WORDS = {"and", "or", "unless", "bool", "group_left", "group_right", "offset"}


def dashboards(directory: Path) -> dict[str, dict]:
    return {path.name: json.loads(path.read_text()) for path in sorted((directory / "dashboards").glob("*.json"))}


def panels(dashboard: dict) -> Iterator[dict]:
    """All panels that show something."""
    for panel in dashboard["panels"]:
        yield from panel["panels"] if panel.get("panels") else [panel] if panel["type"] != "row" else []


def queries(dashboard: dict) -> Iterator[tuple[str, str]]:
    """Panel and expression of each query, with the variables filled in."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            yield panel["title"], expression


def alerts(directory: Path) -> dict[str, dict]:
    """All alerts by their names."""
    rules = {}
    for path in sorted((directory / "rules").glob("*.rules.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                assert rule["alert"] not in rules, f"{rule['alert']} is there twice"
                rules[rule["alert"]] = rule
    return rules


def metrics_of(expression: str) -> set[str]:
    """The names of metrics in an expression, as far as they are not functions or labels."""
    for other in _NOT_METRICS:
        expression = re.sub(other, " ", expression)
    names = re.findall(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()", expression)
    return set(names) - _WORDS


def exported(scraped: str) -> set[str]:
    """All sample names that a scrape declares, by the types of its metrics."""
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"], "gauge": [""]}
    declared = re.findall(r"^# TYPE (\S+) (\S+)$", scraped, re.MULTILINE)
    return {name + suffix for name, kind in declared for suffix in suffixes[kind]}
