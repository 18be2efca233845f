"""The ServerApp: aggregates the model, and the threshold above which a row is an anomaly."""

import math

import numpy as np
from flwr.app import ConfigRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp

from . import autoencoder
from .federated.conduct import conduct
from .federated.nodes import ask, same
from .federated.settings import Settings

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = Settings(context.run_config)
    hidden, seed = settings.whole("hidden-units", 1), settings.whole("seed", 0)
    settings.choice("backend", ("auto", "numpy", "sklearn"))
    settings.whole("local-epochs", 1), settings.whole("batch-size", 1), settings.share("false-alarms", 1.0)
    settings.finish()
    # What the nodes evaluate with; the threshold of a round is known when its training is over.
    told = ConfigRecord({"threshold": math.inf})

    def first_model(fewest: int) -> dict[str, np.ndarray]:
        features = int(same(ask(grid, fewest), "features"))
        print(f"rows of {features} numbers, {hidden} inside")
        return autoencoder.fresh(features, hidden, seed)

    def trained(replies: list[RecordDict], weight_key: str) -> MetricRecord:
        metrics = averaged(replies, weight_key)
        told["threshold"] = metrics["threshold"]
        return metrics

    conduct(
        grid,
        context,
        first_model,
        evaluate_config=told,
        train_metrics_aggr_fn=trained,
        evaluate_metrics_aggr_fn=averaged,
    )


def averaged(replies: list[RecordDict], weight_key: str) -> MetricRecord:
    """The weighted mean of each metric over those nodes that could measure it."""
    records = [record for reply in replies for record in reply.metric_records.values()]
    mean = {}
    for name in records[0]:
        measured = [record for record in records if math.isfinite(float(record[name]))]
        weight = sum(float(record[weight_key]) for record in measured)
        if name != weight_key and weight > 0:
            mean[name] = sum(float(record[name]) * float(record[weight_key]) for record in measured) / weight
    return MetricRecord(mean)
