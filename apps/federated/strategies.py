"""Flower's own strategies, set up from a run config."""

from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
)

from .settings import NODES_FOR_LIARS, STRATEGIES, Settings

# What the papers, and Flower, begin with where nobody says more.
USUAL_SERVER_LR = {"FedAvgM": 1.0, "FedYogi": 0.01}


def strategy_of(settings: Settings, **hooks: object) -> FedAvg:
    """The strategy that is asked for. Every number is checked, also those that the strategy does not use."""
    name = settings.choice("strategy", STRATEGIES)
    mu, liars = settings.not_negative("proximal-mu"), settings.whole("num-malicious", 0)
    # 0 stands for what is usual with the strategy.
    server_lr = settings.not_negative("server-lr") or USUAL_SERVER_LR.get(name, 0.1)
    client_lr, trimmed = settings.positive("client-lr"), settings.share("trim-beta", 0.5)
    common = {
        "min_train_nodes": settings.whole("min-fit-clients", 1),
        "min_evaluate_nodes": settings.whole("min-evaluate-clients", 1),
        "min_available_nodes": settings.whole("min-available-clients", 1),
        "fraction_train": 1.0,
        "fraction_evaluate": 1.0,
        **hooks,
    }
    _check_liars(settings, name, liars, common["min_available_nodes"])
    if name in ("FedAdam", "FedYogi"):
        return {"FedAdam": FedAdam, "FedYogi": FedYogi}[name](eta=server_lr, eta_l=client_lr, **common)
    if name == "FedAdagrad":
        return FedAdagrad(eta=server_lr, eta_l=client_lr, **common)
    if name == "FedAvgM":
        return FedAvgM(server_learning_rate=server_lr, server_momentum=0.9, **common)
    if name == "FedProx":
        return FedProx(proximal_mu=mu, **common)
    if name == "FedTrimmedAvg":
        return FedTrimmedAvg(beta=trimmed, **common)
    if name in NODES_FOR_LIARS:
        return {"Krum": Krum, "Bulyan": Bulyan}[name](num_malicious_nodes=liars, **common)
    return {"FedAvg": FedAvg, "FedMedian": FedMedian}[name](**common)


def _check_liars(settings: Settings, name: str, liars: int, available: int) -> None:
    factor, rest = NODES_FOR_LIARS.get(name, (0, 0))
    needed = factor * liars + rest
    # Without liars the rule is an average of few, and any number will do.
    if liars and available < needed:
        what = f"{name} needs {needed} nodes against {liars} that lie"
        settings.problems.append(f"min-available-clients is {available}, and {what}")
