"""Debian's Prometheus, with the configuration that operators get, watches a real training by official Flower."""

import json
import math
import shutil
import ssl
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.federation import TLS, Federation
from harness.ports import free_address
from harness.prometheus import Prometheus
from harness.waiting import wait_for
from monitoring.expressions import FOREIGN, alerts, dashboards, exported, metrics_of, queries

ROUNDS = 3
RUN_LIMIT_S = 180.0
SCRAPE_LIMIT_S = 30.0

pytestmark = pytest.mark.trellis_only


def configure(deployed: Path, directory: Path, address: str) -> Path:
    """The shipped configuration with our target, and in a hurry."""
    shutil.copytree(deployed, directory)
    config = directory / "prometheus.yml"
    hurried = config.read_text().replace("_interval: 15s", "_interval: 1s")
    assert hurried.count(": 1s") == 2
    config.write_text(hurried)
    targets = directory / "targets" / "fl_training.yml"
    moved = targets.read_text().replace("127.0.0.1:8000", address)
    assert address in moved
    targets.write_text(moved)
    return config


@dataclass
class Watched:
    """A federation at work, and a Prometheus that has seen it."""

    federation: Federation
    metrics_address: str
    prometheus: Prometheus


@pytest.fixture
def watched(federation, prometheus_tools, deployed, workspace) -> Watched:
    """With TLS, so that there is a certificate to be watched; Prometheus has a port of its own, without."""
    address = free_address()
    flags = ("--metrics-address", address, "--log-format", "json")
    fed = federation(app="measured", security=TLS, link_flags=flags).start()
    prometheus = Prometheus(workspace, configure(deployed, workspace.root / "monitoring", address))
    wait_for("a first scrape", lambda: prometheus.value('up{job="fl_training"}') == 1.0, SCRAPE_LIMIT_S)
    return Watched(fed, address, prometheus)


def test_a_training_is_seen_on_every_dashboard(watched, deployed):
    prometheus = watched.prometheus
    begun = time.time()
    stream = watched.federation.cli.follow(num_server_rounds=ROUNDS)
    assert stream.wait_exit(RUN_LIMIT_S) == 0, stream.output()
    wait_for("the end of the run to be scraped", lambda: prometheus.value("fl_training_status") == 2.0, SCRAPE_LIMIT_S)

    assert_numbers(prometheus)
    assert_names(watched, deployed)
    assert_dashboards(prometheus, deployed, begun)
    assert [alert for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"] == []
    assert_events(watched.federation.superlink.process.output())


def assert_numbers(prometheus: Prometheus) -> None:
    """The app's numbers are known beforehand."""
    values = {
        "fl_round_current": ROUNDS,
        "fl_round_total": ROUNDS,
        # Partition 1 has three of the four examples: 3/4 * 1 + 1/3, and 0.5 + 3/4 * 1/4.
        "fl_aggregated_loss": 0.75 + 1 / 3,
        "fl_aggregated_accuracy": 0.6875,
        "fl_clients_connected": 2,
        "fl_clients_selected": 2,
        "fl_clients_responded": 2,
        "fl_clients_failed_total": 1,
        "fl_round_duration_seconds_count": ROUNDS,
        "fl_checkpoint_saved_total": 0,
        "trellis_replies_awaited": 0,
        'trellis_runs{state="completed"}': 1,
        "trellis_clientapp_duration_seconds_count": 2 * 2 * ROUNDS,
    }
    assert {name: prometheus.value(name) for name in values} == pytest.approx(values)
    assert prometheus.ask("query", query="fl_round_current")["result"][0]["metric"]["strategy"] == "FedAvg"


def assert_names(watched: Watched, deployed: Path) -> None:
    """Dashboards and rules are files, in which nobody would notice a misspelt name."""
    scraped = scrape(f"http://{watched.metrics_address}/metrics")
    known = exported(scraped)
    asked = {name: alert["expr"] for name, alert in alerts(deployed).items()}
    for file, dashboard in dashboards(deployed).items():
        asked |= {f"{file}: {panel}: {query}": query for panel, query in queries(dashboard)}
    assert len(asked) > 30
    for place, expression in asked.items():
        named = {name for name in metrics_of(expression) if not FOREIGN.fullmatch(name)}
        assert named <= known, f"{place}: {named - known} is not exported"

    superlink = watched.federation.superlink
    trust = ssl.create_default_context(cafile=superlink.options.tls.ca)
    assert exported(scrape(f"https://{superlink.http_address}/metrics", trust)) == known


def scrape(url: str, trust: ssl.SSLContext | None = None) -> str:
    with urllib.request.urlopen(url, timeout=SCRAPE_LIMIT_S, context=trust) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        return answer.read().decode()


def assert_dashboards(prometheus: Prometheus, deployed: Path, begun: float) -> None:
    """Prometheus understands every query; all that are not about GPUs have found a number during the training."""
    unanswered = []
    for file, dashboard in dashboards(deployed).items():
        for panel, query in queries(dashboard):
            found = any(map(math.isfinite, prometheus.values(query, begun, time.time())))
            is_foreign = any(FOREIGN.fullmatch(name) for name in metrics_of(query))
            if not found and not is_foreign:
                unanswered.append(f"{file}: {panel}: {query}")
    assert unanswered == []


def events_in(log: str) -> list[tuple[str, dict]]:
    """Name and data of each event; every line has what every line must have."""
    lines = [json.loads(line) for line in log.splitlines()]
    for line in lines:
        assert {"timestamp", "level", "logger", "role", "message", "source"} <= set(line), line
        assert line["role"] == "superlink"
    return [(line["event"], line["data"]) for line in lines if "event" in line]


def assert_events(log: str) -> None:
    """The same training, told in the log."""
    events = events_in(log)
    names = [name for name, _ in events]
    assert names.count("client_join") == 2
    told = [name for name in names if name != "client_join"]
    in_a_round = ["round_start", "evaluation_result", "round_end"]
    failing = ["round_start", "client_failure", "evaluation_result", "round_end"]
    assert told[:11] == ["training_start", *in_a_round, *failing, *in_a_round]
    assert told[11] == "training_end"

    data = {name: fields for name, fields in events}
    assert data["training_start"] == {"strategy": "FedAvg", "num_rounds": ROUNDS, "min_clients": 2}
    assert data["round_start"] == {"round": ROUNDS, "num_clients_selected": 2, "strategy": "FedAvg"}
    assert data["client_failure"]["round"] == 2
    assert data["client_failure"]["error_type"] == "client_app_raised_exception"
    assert data["evaluation_result"] == pytest.approx(
        {"round": ROUNDS, "loss": 0.75 + 1 / 3, "accuracy": 0.6875, "num_examples": 4}
    )
    assert data["training_end"]["total_rounds"] == ROUNDS


def test_a_training_is_told_across_a_crash(federation):
    """What began before the kill is not told again, and what ends after it is."""
    fed = federation(app="measured", link_flags=("--log-format", "json")).start()
    run_id = fed.cli.submit(num_server_rounds=ROUNDS, fail_round=0)
    fed.superlink.process.wait_line('"event":"round_start","data":{"round":2,', RUN_LIMIT_S)
    fed.superlink.kill()
    fed.superlink.start()
    fed.wait_finished(run_id)
    log = fed.superlink.process
    log.wait_line('"event":"training_end"', SCRAPE_LIMIT_S)

    events = [(name, data) for name, data in events_in(log.output()) if not name.startswith("client_")]
    told = [(name, data["round"]) for name, data in events if "round" in data]
    rounds = range(1, ROUNDS + 1)
    for name in ("round_start", "evaluation_result", "round_end"):
        assert [number for event, number in told if event == name] == list(rounds), name
    assert [name for name, _ in events].count("training_start") == 1
    last, data = events[-1]
    assert (last, data["total_rounds"]) == ("training_end", ROUNDS)


def test_a_dead_superlink_is_noticed(watched):
    watched.federation.superlink.kill()

    def is_pending() -> bool:
        told = watched.prometheus.ask("alerts")["alerts"]
        return any(alert["labels"]["alertname"] == "SuperLinkDown" for alert in told)

    wait_for("the alert SuperLinkDown to be pending", is_pending, SCRAPE_LIMIT_S)
