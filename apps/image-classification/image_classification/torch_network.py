"""The same dense layers, and a convolutional network, in PyTorch. Only imported where that is installed."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .data import Images

TEST_BATCH = 256
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Dense(nn.Module):
    def __init__(self, model: dict[str, np.ndarray]):
        super().__init__()
        hidden, features = model["dense1.weight"].shape
        self.dense1 = nn.Linear(features, hidden)
        self.dense2 = nn.Linear(hidden, model["dense2.weight"].shape[0])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.dense2(functional.relu(self.dense1(pixels.flatten(1))))


class Convolutional(nn.Module):
    def __init__(self, model: dict[str, np.ndarray]):
        super().__init__()
        after, channels = model["conv1.weight"].shape[:2]
        self.conv1 = nn.Conv2d(channels, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, model["conv2.weight"].shape[0], 3, padding=1)
        hidden, features = model["dense1.weight"].shape
        self.dense1 = nn.Linear(features, hidden)
        self.dense2 = nn.Linear(hidden, model["dense2.weight"].shape[0])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        inner = functional.max_pool2d(functional.relu(self.conv1(pixels)), 2)
        inner = functional.max_pool2d(functional.relu(self.conv2(inner)), 2)
        return self.dense2(functional.relu(self.dense1(inner.flatten(1))))


def train(model: dict, images: Images, *, lr: float, epochs: int, batch_size: int, mu: float, rng) -> tuple[dict, float]:
    network = _network(model)
    origin = [parameter.detach().clone() for parameter in network.parameters()]
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    losses = []
    network.train()
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(order), batch_size):
            pixels, labels = _tensors(images.chosen(order[start : start + batch_size]))
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(pixels), labels)
            pull = sum(((now - begin) ** 2).sum() for now, begin in zip(network.parameters(), origin))
            (loss + mu / 2 * pull).backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    state = network.state_dict()
    # In the order in which they came: the strategies of the server go by it.
    return {name: state[name].cpu().numpy() for name in model}, float(np.mean(losses))


@torch.no_grad()
def evaluate(model: dict, images: Images) -> tuple[float, float]:
    network = _network(model)
    network.eval()
    loss, right = 0.0, 0
    for start in range(0, len(images), TEST_BATCH):
        pixels, labels = _tensors(images.chosen(np.arange(start, min(start + TEST_BATCH, len(images)))))
        summed = network(pixels)
        loss += float(functional.cross_entropy(summed, labels, reduction="sum"))
        right += int((summed.argmax(1) == labels).sum())
    return loss / len(images), right / len(images)


def _network(model: dict[str, np.ndarray]) -> nn.Module:
    network = (Convolutional if "conv1.weight" in model else Dense)(model)
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in model.items()})
    return network.to(DEVICE)


def _tensors(images: Images) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(images.pixels).to(DEVICE), torch.from_numpy(images.labels).to(DEVICE)
