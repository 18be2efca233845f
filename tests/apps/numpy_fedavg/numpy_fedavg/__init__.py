"""A deterministic FedAvg app: the yardstick for comparing SuperLinks bit for bit."""
