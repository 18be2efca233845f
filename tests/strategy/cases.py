"""Cases for strategies: by hand, one for each, and random ones."""

import base64
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "uint8", "int8", "bool")
SHAPES = ((1,), (7,), (3, 4), (2, 3, 2), (0,), (64,), (300,))
# Their steps divide by differences that may be near zero, and so magnify the rounding of what went before.
ADAPTIVE = ("FedAdagrad", "FedAdam", "FedYogi")
# One of their numbers is a numpy float64, so that Flower's answer is float64 whatever the model was; ours is not.
WIDENING = ("FedAdam", "QFedAvg")
# What it gives is one of the replies, or lies exactly between two.
EXACT = ("FedMedian", "Krum")
DISTANT = ("Krum", "MultiKrum", "Bulyan")
# Flower fails on integers (QFedAvg), makes zeros of them (the old interface), or computes distances that overflow.
FLOATS_ONLY = ("QFedAvg", "FaultTolerantFedAvg", *DISTANT)
# What happens to one array depends on the others, and so has the precision of the coarsest.
COUPLED = ("QFedAvg",)
STRATEGIES = (
    *("FedAvg", "FedAvgM", "FedProx", *ADAPTIVE, "FedMedian", "FedTrimmedAvg", *DISTANT),
    *("QFedAvg", "FaultTolerantFedAvg"),
)


@dataclass(frozen=True)
class Reply:
    node: int
    arrays: Arrays
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Case:
    strategy: str
    model: Arrays
    rounds: list[list[Reply]]
    parameters: dict[str, float] = field(default_factory=dict)
    privacy: dict[str, Any] | None = None
    compat: bool = False

    def told(self) -> dict[str, Any]:
        """As both sides read it."""

        def reply(one: Reply) -> dict[str, Any]:
            return {"node": one.node, "arrays": told(one.arrays), "metrics": list(one.metrics.items())}

        training = {
            "strategy": self.strategy,
            "parameters": self.parameters,
            "privacy": self.privacy,
            "compat": self.compat,
            "model": told(self.model),
            "rounds": [[reply(one) for one in replies] for replies in self.rounds],
        }
        return {"training": training}


def told(arrays: Arrays) -> list[dict[str, Any]]:
    def one(name: str, values: np.ndarray) -> dict[str, Any]:
        data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
        return {"name": name, "dtype": values.dtype.name, "shape": list(values.shape), "data": data}

    return [one(name, values) for name, values in arrays.items()]


def heard(arrays: list[dict[str, Any]]) -> Arrays:
    def one(array: dict[str, Any]) -> np.ndarray:
        return np.frombuffer(base64.b64decode(array["data"]), dtype=array["dtype"]).reshape(array["shape"])

    return {array["name"]: one(array) for array in arrays}


class Maker:
    """Makes random cases; the same of the same seed."""

    def __init__(self, seed: int, scalars: bool):
        self.rng = np.random.default_rng(seed)
        # Arrays without an axis, which older releases cannot aggregate.
        self.shapes = (*SHAPES, ()) if scalars else SHAPES

    def case(self, strategy: str) -> Case:
        rounds = int(self.rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2]))
        parameters, nodes = self.parameters(strategy)
        integers = strategy not in FLOATS_ONLY and self.rng.random() < 0.2
        layout = self.layout(integers)
        size = float(10.0 ** self.rng.integers(-2, 3))
        model = self.arrays(layout, size)
        replies = [self.replies(layout, size, nodes) for _ in range(rounds)]
        return Case(strategy, model, replies, parameters, compat=integers)

    def parameters(self, strategy: str) -> tuple[dict[str, float], int]:
        """And for how many nodes."""
        rng = self.rng
        nodes = int(rng.integers(2, 9))
        pick = lambda *values: float(rng.choice(values))  # noqa: E731
        malicious = int(rng.integers(0, 3))
        match strategy:
            case "FedAvgM":
                return {"server_learning_rate": pick(1.0, 0.5, 0.1), "server_momentum": pick(0.0, 0.5, 0.9)}, nodes
            case "FedAdagrad":
                return {"eta": pick(0.1, 1.0), "tau": pick(1e-3, 1e-1)}, nodes
            case "FedAdam" | "FedYogi":
                betas = {"beta_1": pick(0.9, 0.0, 0.5), "beta_2": pick(0.99, 0.9)}
                return {"eta": pick(0.1, 0.01), "tau": pick(1e-3, 1e-1), **betas}, nodes
            case "FedTrimmedAvg":
                return {"beta": pick(0.0, 0.1, 0.2, 0.3, 0.49)}, nodes
            case "Krum":
                return {"num_malicious": malicious}, nodes + 2 * malicious + 3
            case "MultiKrum":
                select = int(rng.integers(1, 4))
                return {"num_malicious": malicious, "num_nodes_to_select": select}, nodes + 2 * malicious + 3
            case "Bulyan":
                return {"num_malicious": malicious}, 4 * malicious + 3 + int(rng.integers(0, 4))
            case "QFedAvg":
                return {"client_learning_rate": pick(0.1, 0.01, 1.0), "q": pick(0.1, 0.0, 1.0, 2.5)}, nodes
            case "FedProx":
                return {"proximal_mu": pick(0.0, 0.5)}, nodes
        return {}, nodes

    def layout(self, integers: bool) -> list[tuple[str, str, tuple[int, ...]]]:
        count = int(self.rng.integers(1, 4))
        # At least one with something in it, and of one type mostly, as models are.
        main = str(self.rng.choice(FLOATS, p=[0.6, 0.25, 0.15]))
        dtypes = [main if self.rng.random() < 0.7 else str(self.rng.choice(FLOATS)) for _ in range(count)]
        if integers:
            dtypes[-1] = str(self.rng.choice(INTEGERS))
        shapes = [(5,), *(self.shapes[i] for i in self.rng.integers(0, len(self.shapes), count - 1))]
        return [(f"layer{i}.weight", dtype, shape) for i, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True))]

    def arrays(self, layout: list[tuple[str, str, tuple[int, ...]]], size: float) -> Arrays:
        def one(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
            if dtype in INTEGERS:
                return self.rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
            # Halves end at 65,504, and Flower squares in them.
            return np.asarray(self.rng.normal(0.0, min(size, 1.0) if dtype == "float16" else size, shape)).astype(dtype)

        return {name: one(dtype, shape) for name, dtype, shape in layout}

    def replies(self, layout: list[tuple[str, str, tuple[int, ...]]], size: float, nodes: int) -> list[Reply]:
        ids = sorted(int(number) for number in self.rng.choice(10_000, nodes, replace=False) + 2)
        return [Reply(node, self.arrays(layout, size), self.metrics()) for node in ids]

    def metrics(self) -> dict[str, Any]:
        """Fractions of a power of two, which all sides read alike."""
        part = lambda: float(self.rng.integers(1, 4096)) / 1024  # noqa: E731
        return {
            "train_loss": part(),
            "num-examples": int(self.rng.integers(1, 2000)),
            "right": int(self.rng.integers(0, 100)),
            "by-class": [part() for _ in range(3)],
            "counts": [int(number) for number in self.rng.integers(0, 100, 2)],
        }


def by_hand() -> dict[str, Case]:
    """One for each strategy, small enough to be followed; with a name."""
    layers = [("conv.weight", "float32", (2, 3)), ("conv.bias", "float32", (3,)), ("head", "float64", (2,))]
    made = {}
    for index, strategy in enumerate(STRATEGIES):
        maker = Maker(1000 + index, scalars=False)
        parameters, nodes = maker.parameters(strategy)
        rounds = [maker.replies(layers, 1.0, nodes) for _ in range(2)]
        made[strategy] = Case(strategy, maker.arrays(layers, 1.0), rounds, parameters)
    integers = [("seen", "int64", (3,)), ("weight", "float32", (4,))]
    maker = Maker(2000, scalars=False)
    made["FedAvg-integers"] = Case(
        "FedAvg", maker.arrays(integers, 1.0), [maker.replies(integers, 1.0, 4)], compat=True
    )
    halves = [("weight", "float16", (4,))]
    made["FedAvg-halves"] = Case("FedAvg", maker.arrays(halves, 1.0), [maker.replies(halves, 1.0, 3)])
    return made


def private(maker: Maker, kind: str, strategy: str, dtype: str, compat: bool) -> Case:
    """Under privacy without noise: what is clipped, and how the limit moves. Clients count alike, unless `compat`."""
    layout = [("a", dtype, (5,)), ("b", dtype, (3, 4))]
    model = maker.arrays(layout, 1.0)
    nodes = 6
    rounds = []
    for _ in range(3):
        replies = maker.replies(layout, 1.0, nodes)
        for index, reply in enumerate(replies):
            if not compat:
                reply.metrics["num-examples"] = 100
            if kind == "client-adaptive":
                reply.metrics["norm_bit"] = index % 3 // 2
        # Some far away, some near.
        rounds.append([toward(model, one, 0.05 * index) for index, one in enumerate(replies, 1)])
    privacy = {"kind": kind, "clipping_norm": 0.75, "num_sampled": nodes}
    return Case(strategy, model, rounds, {}, privacy, compat)


def toward(model: Arrays, reply: Reply, share: float) -> Reply:
    """What lies between the model and a reply."""
    between = {
        name: (old + np.asarray(share, old.dtype) * (reply.arrays[name] - old)).astype(old.dtype)
        for name, old in model.items()
    }
    return replace(reply, arrays=between)
