"""The ServerApp: aggregates adapters. It never has the language model, so it needs neither its files nor PyTorch."""

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from .federated.conduct import conduct
from .federated.nodes import ask, same
from .federated.settings import Settings

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = Settings(context.run_config)
    for key, least in (("lora-rank", 1), ("max-steps", 1), ("seq-length", 8), ("local-epochs", 1), ("batch-size", 1)):
        settings.whole(key, least)
    settings.positive("lora-alpha"), settings.whole("seed", 0)
    settings.finish()

    def first_model(fewest: int) -> dict[str, np.ndarray]:
        answers = ask(grid, fewest)
        kind, examples = same(answers, "model"), sum(int(answer["about"]["examples"]) for answer in answers)
        adapters = {name: array.numpy() for name, array in answers[0]["arrays"].items()}
        numbers = sum(array.size for array in adapters.values())
        print(f"model {kind}: adapters of {numbers} numbers, {examples} examples on {len(answers)} nodes")
        return adapters

    conduct(grid, context, first_model)
