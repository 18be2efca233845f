"""The ServerApp: FedAvg over the offices, judged each round by digits that no office trained on."""

import json
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class ToldFedAvg(FedAvg):
    """FedAvg that says how far it is."""

    curve: list[dict]

    def aggregate_evaluate(self, server_round, replies):
        metrics = super().aggregate_evaluate(server_round, replies)
        if metrics is not None:
            loss, accuracy = float(metrics["eval_loss"]), float(metrics["eval_acc"])
            self.curve.append({"round": server_round, "loss": loss, "accuracy": accuracy})
            print(f"round {server_round}  loss {loss:.4f}  accuracy {accuracy:.1%}", flush=True)
        return metrics


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, rounds = int(config["nodes"]), int(config["num-server-rounds"])
    strategy = ToldFedAvg(min_train_nodes=nodes, min_evaluate_nodes=nodes, min_available_nodes=nodes)
    strategy.curve = []
    training = ConfigRecord({"lr": float(config["lr"]), "local-epochs": int(config["local-epochs"])})
    strategy.start(grid, first_weights(grid), num_rounds=rounds, train_config=training)
    if path := str(config["result-path"]):
        Path(path).write_text(json.dumps({"curve": strategy.curve}))


def first_weights(grid: Grid) -> ArrayRecord:
    """Fresh weights from one of the nodes: it knows the shapes."""
    node = next(iter(grid.get_node_ids()))
    question = Message(RecordDict(), dst_node_id=node, message_type="query.init")
    (answer,) = grid.send_and_receive([question])
    return answer.content["arrays"]
