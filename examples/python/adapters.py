"""Four sites train low-rank adapters of a model that is frozen: only the adapters travel.

    python adapters.py

The model is the transformer of text.py, trained at one site first. Its weights stay as they are,
and are compared when nodes link; each linear layer gets an adapter of rank 4. It prints (Python
3.11, torch 2.15, a CPU, a minute):

    before, loss on the text of all sites  2.216
    after 10 rounds of 50 steps             2.091
    8960 of 129664 numbers are trained; a site sends 72 kB a round
"""

from __future__ import annotations

import torch
from text import RATE, STEPS, Transformer, build, load, test
from torch import nn
from torch.nn.utils import parametrize

import gradvine

RANK = 4
ROUNDS = 10


class LowRank(nn.Module):
    """Adds B A to a weight: rows x rank times rank x columns."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.a = nn.Parameter(torch.randn(RANK, columns) / columns**0.5)
        self.b = nn.Parameter(torch.zeros(rows, RANK))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.b @ self.a


def pretrain() -> Transformer:
    """The model after training on the first site's text."""
    sites, _ = load()
    model = build()
    inner = torch.optim.AdamW(model.parameters(), lr=RATE)
    for _ in range(400):
        inner.zero_grad()
        sites[0].loss(model).backward()
        inner.step()
    return model


def adapt(model: Transformer) -> None:
    """Freezes the model, and adds adapters with the same initial values at every site."""
    torch.manual_seed(2)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for layer in list(model.modules()):
        if isinstance(layer, nn.Linear):
            parametrize.register_parametrization(layer, "weight", LowRank(layer.weight))


def main() -> None:
    torch.set_num_threads(1)
    sites, windows = load()
    model = pretrain()
    print(f"before, loss on the text of all sites  {test(model, windows)['loss']:.3f}")
    adapt(model)
    trained = [value for value in model.parameters() if value.requires_grad]
    count = sum(value.numel() for value in trained)
    total = sum(value.numel() for value in model.parameters())
    inners = [torch.optim.AdamW(trained, lr=RATE) for _ in sites]

    def train(node: int, model: nn.Module) -> float:
        for _ in range(STEPS):
            inners[node].zero_grad()
            loss = sites[node].loss(model)
            loss.backward()
            inners[node].step()
        return loss.item()

    end = gradvine.simulate(
        {"run.rounds": ROUNDS, "topology.file": "ring:4", "rule.kind": "noloco"},
        model,
        train,
        rows=[len(site.text) for site in sites],
        evaluate=lambda model: test(model, windows),
    )
    sent = end.curve[-1].bytes_wire / ROUNDS / len(sites)
    print(
        f"after {ROUNDS} rounds of {STEPS} steps             {end.curve[-1].measures['loss']:.3f}"
    )
    print(f"{count} of {total} numbers are trained; a site sends {sent / 1e3:.0f} kB a round")


if __name__ == "__main__":
    main()
