"""Four sites train a convolutional network on handwritten digits; each has two or three of them.

    python digits.py                    # starts the four sites as processes of this machine
    python digits.py --site node.toml   # one site, as it would be started on a machine of its own

It prints (torch 2.15, CPU):

    one site alone   31.4%
    all together     94.2%   digest 78e839960a2ad0d0

With AdamW inside and five steps a round (`--inner adamw --step 0.002 --every 5 --rounds 200
--compressor identity`) an outer momentum helps: `--rule d-psgd` gives 91.9%, `--rule diloco` 97.5%,
`--rule noloco` 92.8%.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import gradvine

DATA = Path(__file__).parents[2] / "data" / "digits.csv.gz"
SITES = 4


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """1797 images of 8 x 8 pixels, and their digits."""
    with gzip.open(DATA, "rt") as lines:
        rows = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    order = np.random.default_rng(1).permutation(len(rows))
    rows = torch.from_numpy(rows[order])
    return (rows[:, :-1] / 16.0).view(-1, 1, 8, 8), rows[:, -1].long()


def network() -> nn.Module:
    """38,282 parameters, the same initial values at every site."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def share(site: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The training rows of a site: those of two or three digits. The last fifth of all rows is for
    the test."""
    x, y = load()
    x, y = x[: len(x) * 4 // 5], y[: len(y) * 4 // 5]
    chosen = (y * SITES // 10) == site
    return x[chosen], y[chosen]


def accuracy(model: nn.Module) -> dict[str, float]:
    """The share of right answers on the test rows."""
    x, y = load()
    x, y = x[len(x) * 4 // 5 :], y[len(y) * 4 // 5 :]
    with torch.no_grad():
        return {"accuracy": (model(x).argmax(dim=1) == y).float().mean().item()}


def train_site(file: str, arguments: argparse.Namespace) -> None:
    """One site: the whole program of a machine."""
    torch.set_num_threads(1)
    site = int(Path(file).parent.name)
    x, y = share(site)
    model = network()
    if arguments.inner == "adamw":
        inner: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.step)
    else:
        inner = torch.optim.SGD(model.parameters(), lr=arguments.step)

    node = gradvine.join(file, model, rows=len(x), every=arguments.every)
    sync = gradvine.attach(node, model, inner)
    generator = torch.Generator().manual_seed(site)
    while not sync.done:
        batch = torch.randint(len(x), (32,), generator=generator)
        inner.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        sync.record(loss.item())
        inner.step()
    result = gradvine.finish(sync, evaluate=accuracy)
    print(json.dumps({"digest": result.digest, **result.metrics["measures"]["accuracy"]}))


def train_alone(site: int, steps: int, step: float) -> float:
    """What a site reaches without the others."""
    torch.set_num_threads(1)
    x, y = share(site)
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=step)
    generator = torch.Generator().manual_seed(site)
    for _ in range(steps):
        batch = torch.randint(len(x), (32,), generator=generator)
        inner.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        inner.step()
    return accuracy(model)["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", metavar="FILE", help="run one site with its node.toml")
    parser.add_argument("--rule", default="choco", help="update rule (gradvine rules)")
    parser.add_argument("--compressor", default="min-max")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--every", type=int, default=1, help="steps per round")
    parser.add_argument("--inner", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--step", type=float, default=0.1)
    arguments = parser.parse_args()
    if arguments.site:
        train_site(arguments.site, arguments)
        return
    experiment: dict[str, object] = {
        "run.rounds": arguments.rounds,
        "topology.file": f"ring:{SITES}",
        "rule.kind": arguments.rule,
    }
    if arguments.compressor != "identity":
        experiment["compressor.kind"] = arguments.compressor
        experiment["compressor.bits"] = arguments.bits
    with tempfile.TemporaryDirectory() as folder:
        files = gradvine.local_nodes(Path(folder) / "sites", experiment)
        command = [sys.executable, __file__, *sys.argv[1:], "--site"]
        sites = [
            subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True)
            for file in files
        ]
        ends = [json.loads(site.communicate()[0]) for site in sites]
    assert len({end["digest"] for end in ends}) == 1, "all sites end with the same models"
    alone = train_alone(0, arguments.rounds * arguments.every, arguments.step)
    print(f"one site alone   {alone:.1%}")
    print(f"all together     {ends[0]['of_mean']:.1%}   digest {ends[0]['digest'][:16]}")


if __name__ == "__main__":
    main()
