"""Alert rules and the configuration, by Prometheus' own tool: they are sound, they fire, and they keep quiet."""

import subprocess
from pathlib import Path

import pytest
import yaml

from monitoring.expressions import alerts

TESTS_OF_RULES = Path(__file__).resolve().parent / "alerts.test.yml"
PROMTOOL_LIMIT_S = 60
# Those that operators of Flower federations know by name.
KNOWN = {
    "FLTrainingStalled": ("critical", "15m"),
    "FLExcessiveClientDropout": ("warning", "5m"),
    "FLClientFailureRate": ("warning", "5m"),
    "FLTrainingNotStarted": ("warning", "30m"),
    "GPUMemoryExhaustion": ("critical", "2m"),
    "GPUUtilizationDrop": ("warning", "10m"),
    "GPUTemperatureCritical": ("critical", "2m"),
    "GPUXIDError": ("critical", "1m"),
}

pytestmark = pytest.mark.quick


def promtool(tools: Path, *arguments: object) -> str:
    argv = [str(tools / "promtool"), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PROMTOOL_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_and_configuration_are_sound(prometheus_tools, deployed):
    files = sorted((deployed / "rules").glob("*.yml"))
    promtool(prometheus_tools, "check", "rules", "--lint=all", "--lint-fatal", *files)
    told = promtool(prometheus_tools, "check", "config", deployed / "prometheus.yml")
    assert f"{len(files)} rule files found" in told


def test_alerts_fire_and_keep_quiet(prometheus_tools):
    promtool(prometheus_tools, "test", "rules", TESTS_OF_RULES)


def test_every_alert_has_a_test_of_both(deployed):
    fires, quiet = set(), set()
    for scene in yaml.safe_load(TESTS_OF_RULES.read_text())["tests"]:
        for check in scene["alert_rule_test"]:
            (fires if check["exp_alerts"] else quiet).add(check["alertname"])
    assert fires == quiet == set(alerts(deployed))


def test_the_known_alerts_are_there(deployed):
    found = alerts(deployed)
    assert {name: (found[name]["labels"]["severity"], found[name]["for"]) for name in KNOWN} == KNOWN
    for name, alert in found.items():
        assert set(alert["annotations"]) == {"summary", "description"}, name
