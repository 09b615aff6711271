"""What the programs of this folder train, and what they measure; `../side_by_side.py` starts them.

Variables of the environment say which site a program is, what it trains, and how long.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

DATA = Path(__file__).parents[4] / "data" / "digits.csv.gz"

#: Rows of a step.
BATCH = {"digits": 32, "wide": 8}

#: The wide model: ten layers of this width, without bias, which are ten million parameters.
WIDTH, DEPTH = 1000, 10


class Task:
    """One site's model, rows and measurements."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.model = os.environ["BENCH_MODEL"]
        self.site = int(os.environ["BENCH_SITE"])
        #: Steps of a round, as the programs ask for them.
        self.every = int(os.environ["BENCH_EVERY"])
        self.rounds = int(os.environ["BENCH_ROUNDS"])
        self.limit_s = float(os.environ["BENCH_LIMIT_S"])
        self.folder = Path(os.environ["BENCH_FOLDER"])
        #: What the case tells the tool besides.
        self.options: dict[str, object] = json.loads(os.environ["BENCH_OPTIONS"])
        self.batch = BATCH[self.model]
        self.round = 0
        self.steps = 0
        #: After each round: the time, the bytes on the interface, the steps so far.
        self.marks: list[tuple[float, int, int]] = []

        if self.model == "digits":
            with gzip.open(DATA, "rt") as lines:
                rows = np.loadtxt(lines, delimiter=",", skiprows=1, dtype=np.float32)
            rows = torch.from_numpy(rows[np.random.default_rng(1).permutation(len(rows))])
            x, y = (rows[:, :-1] / 16.0).view(-1, 1, 8, 8), rows[:, -1].long()
            used = len(x) * 4 // 5
            self.test = x[used:], y[used:]
            self.x, self.y = x[self.site : used : 2], y[self.site : used : 2]
        else:
            generator = torch.Generator().manual_seed(self.site)
            self.x = torch.randn(512, WIDTH, generator=generator)
            self.y = self.x.roll(1, dims=1)
            self.test = self.x, self.y
        self.rows = len(self.x)

    def network(self) -> nn.Module:
        """The model, with the same initial values at both sites."""
        torch.manual_seed(1)
        if self.model == "digits":
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
        layers: list[nn.Module] = []
        for _ in range(DEPTH):
            linear = nn.Linear(WIDTH, WIDTH, bias=False)
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
            layers += [linear, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def loss(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.model == "digits":
            return nn.functional.cross_entropy(output, y)
        return nn.functional.mse_loss(output, y)

    def batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Random batches of this site's rows, until the rounds are over."""
        generator = torch.Generator().manual_seed(self.site)
        end = time.perf_counter() + self.limit_s
        while self.round < self.rounds and time.perf_counter() < end:
            rows = torch.randint(self.rows, (self.batch,), generator=generator)
            yield self.x[rows], self.y[rows]

    def ready(self) -> None:
        """Waits until both sites have come so far: their first rounds then begin together."""
        (self.folder / f"ready-{self.site}").touch()
        while not all((self.folder / f"ready-{site}").exists() for site in range(2)):
            time.sleep(0.01)
        self.marks.append((time.perf_counter(), bytes_so_far(), 0))

    def step(self, rounds: int | None = None) -> None:
        """Notes that a step is over. `rounds` are those done so far, where the program knows them;
        otherwise each `every` steps are one."""
        self.steps += 1
        rounds = self.steps // self.every if rounds is None else rounds
        if rounds > self.round:
            self.round = rounds
            self.marks.append((time.perf_counter(), bytes_so_far(), self.steps))

    def end(self, model: nn.Module) -> None:
        """Writes what was measured."""
        x, y = self.test
        with torch.no_grad():
            output = model(x)
            if self.model == "digits":
                measure = (output.argmax(dim=1) == y).float().mean().item()
            else:
                measure = self.loss(output, y).item()
        text = json.dumps({"marks": self.marks, "measure": measure})
        (self.folder / f"end-{self.site}.json").write_text(text)


def bytes_so_far() -> int:
    """Bytes that the loopback interface of this network namespace has received, which are those
    that it has sent: both directions between the sites, with all headers."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == "lo":
            return int(values.split()[0])
    raise RuntimeError("there is no loopback interface")
