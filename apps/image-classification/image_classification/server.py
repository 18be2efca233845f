"""The ServerApp: asks the nodes what their images are like, and trains a network that fits them."""

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from . import convolutional, dense
from .federated.conduct import conduct
from .federated.nodes import ask, same
from .federated.settings import Settings

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = Settings(context.run_config)
    hidden, seed = settings.whole("hidden-units", 1), settings.whole("seed", 0)
    backend = settings.choice("backend", ("auto", "numpy", "pytorch"))
    kind = settings.choice("model", ("auto", "mlp", "cnn"))
    settings.whole("local-epochs", 1), settings.whole("batch-size", 1), settings.not_negative("dirichlet-alpha")
    if kind == "cnn" and backend == "numpy":
        settings.problems.append("model is cnn, which needs backend pytorch")
    settings.finish()

    def first_model(fewest: int) -> dict[str, np.ndarray]:
        answers = ask(grid, fewest)
        shape = tuple(int(same(answers, name)) for name in ("channels", "height", "width"))
        classes = max(int(answer["about"]["classes"]) for answer in answers)
        everywhere = all(answer["about"]["pytorch"] for answer in answers)
        deep = kind == "cnn" or (kind == "auto" and backend != "numpy" and everywhere)
        print(f"images of {shape}, {classes} classes: {'a convolutional network' if deep else 'dense layers'}")
        if deep:
            return convolutional.fresh(shape, hidden, classes, seed)
        return dense.fresh(int(np.prod(shape)), hidden, classes, seed)

    conduct(grid, context, first_model)
