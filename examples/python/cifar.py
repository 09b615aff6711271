"""Four regions train a convolutional network on CIFAR-10, each on other classes of pictures.

    python cifar.py --data FOLDER                       # all ways below, in virtual time
    python cifar.py --data FOLDER --split dirichlet     # less uneven classes: --alpha 0.3
    python cifar.py --data FOLDER --ways noloco choco   # some of them

The folder has CIFAR-10's binary files (data_batch_1.bin to data_batch_5.bin and test_batch.bin), or
IDX files of 32 x 32 x 3 images; neither comes with gradvine. Links are those of
topologies/four-regions.toml, and a round is 8 steps of SGD with momentum on 32 images. With 8,000
images to train and 2,000 to test on, Python 3.11 and torch 2.15 print, on a core of an AMD EPYC CPU
and in fifteen minutes for each split (100 rounds; the accuracy is that of the mean of all models):

                                 label dirichlet  kB a round   virtual
    alone, mean of sites         23.6%     33.9%           -         -
    pooled                       60.1%     61.5%           -         -
    d-psgd                       52.5%     56.9%         547      48 s
    choco, 4 bits                52.8%     56.7%          71      32 s
    noloco                       53.9%     57.1%         547      48 s
    gasloc                       56.8%     57.4%         547      48 s
    sparse-loco, 2 %             53.3%     55.4%          20      31 s
    streaming-diloco, 4 bits     52.3%     56.3%         106      37 s
    diloco, all-reduce           49.0%     55.2%         410      81 s

"pooled" is training in one place on the batches of all sites: each step sees four times the
images. With --seed 2, label gives 0.3 points more or less for d-psgd and noloco, 1 to 1.5 for
choco and sparse-loco, 3 for diloco. The step size suits the others, not diloco, whose outer
momentum multiplies it by seven: with --rate 0.0025 diloco has 58.1%, and d-psgd 50.3%. A top-k of
2 % is as good as whole models because SGD's changes are concentrated: these numbers hold a third of
a round's squared change. With AdamW inside they hold 8 to 24 %, and sparse-loco was 12 points
behind d-psgd after 40 rounds.
"""

from __future__ import annotations

import argparse
import gzip
import math
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import gradvine

Pixels = npt.NDArray[np.uint8]
Settings = dict[str, str | int | float]

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
#: A ring of four regions with the latencies and rates of their links; and all pairs.
RING = str(TOPOLOGIES / "four-regions.toml")
ALL_PAIRS = str(TOPOLOGIES / "four-regions-all.toml")
SITES = 4
CLASSES = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCH = 32
STEPS = 8
RATE = 0.01
#: Of streaming-diloco.
FRAGMENTS = 4
#: What a step takes in virtual time: about as long as one core of a CPU needs for it.
STEP_MS = 20.0

# The files.

IDX = ("train-images-idx4-ubyte", "train-labels-idx1-ubyte")
IDX_TEST = ("test-images-idx4-ubyte", "test-labels-idx1-ubyte")
BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
BATCH_TEST = "test_batch.bin"
#: A label, then 32 x 32 red, green and blue pixels.
RECORD = 1 + 3 * 32 * 32
ACCEPTED = (
    f"the IDX files {', '.join((*IDX, *IDX_TEST))} (each may end in .gz), with images of "
    f"32 x 32 x 3; or CIFAR-10's binary files {BATCHES[0]} to {BATCHES[-1]} and {BATCH_TEST}"
)


class DataError(Exception):
    """A folder or file that is not CIFAR-10: says which, what was found and what is accepted."""


@dataclass(frozen=True)
class Images:
    """Pictures and their classes."""

    #: n x 32 x 32 x 3 numbers from 0 to 255.
    pixels: torch.Tensor
    #: n numbers from 0 to 9.
    classes: torch.Tensor

    def __len__(self) -> int:
        return len(self.classes)

    def rows(self, chosen: torch.Tensor) -> Images:
        return Images(self.pixels[chosen], self.classes[chosen])

    def inputs(self) -> torch.Tensor:
        """n x 3 x 32 x 32 numbers from -2 to 2. Colours are innermost in memory (PyTorch's
        channels_last), with which a CPU trains faster."""
        return (self.pixels.permute(0, 3, 1, 2).float() - 127.5) / 63.75


def load(folder: Path) -> tuple[Images, Images]:
    """The images to train and to test on."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise DataError(f"{folder}: found {found}; accepted is a folder with {ACCEPTED}")
    names = [path.name for path in folder.iterdir()]
    if any(name.removesuffix(".gz") in IDX + IDX_TEST for name in names):
        return read_idx_pair(folder, IDX), read_idx_pair(folder, IDX_TEST)
    if any(name.removesuffix(".gz") in (*BATCHES, BATCH_TEST) for name in names):
        return read_records(folder, BATCHES), read_records(folder, (BATCH_TEST,))
    raise DataError(f"{folder}: found {list_files(folder)}; accepted are {ACCEPTED}")


def read_idx_pair(folder: Path, names: tuple[str, str]) -> Images:
    """IDX files of images and of their classes."""
    images, labels = (find(folder, name) for name in names)
    pixels = read_idx(images, "n x 32 x 32 x 3", (32, 32, 3))
    classes = read_idx(labels, "n", ())
    if len(pixels) != len(classes):
        raise DataError(
            f"{labels}: found {len(classes)} labels; accepted are {len(pixels)}, as many as "
            f"{images.name} has images"
        )
    return as_images(pixels, classes, labels)


def read_idx(path: Path, words: str, shape: tuple[int, ...]) -> Pixels:
    """An IDX file: two zeros, the type (8: bytes), the number of dimensions, the dimensions as
    big-endian numbers of 4 bytes, the values."""
    raw = read_bytes(path)
    start = bytes([0, 0, 8, 1 + len(shape)])
    if raw[:4] != start:
        raise DataError(
            f"{path}: found the first bytes {raw[:4].hex(' ') or '(none)'}; accepted are "
            f"{start.hex(' ')}: an IDX file of bytes, {words}"
        )
    head = 4 + 4 * start[3]
    found = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, head, 4))
    if found[1:] != shape:
        sizes = " x ".join(map(str, found))
        raise DataError(f"{path}: found the dimensions {sizes}; accepted are {words}")
    if len(raw) - head != math.prod(found):
        raise DataError(
            f"{path}: found {max(len(raw) - head, 0)} bytes of values; accepted are "
            f"{math.prod(found)}, as the dimensions in the file say"
        )
    return np.frombuffer(raw, np.uint8, offset=head).reshape(found)


def read_records(folder: Path, names: tuple[str, ...]) -> Images:
    """Files of CIFAR-10's binary records."""
    parts = []
    for name in names:
        path = find(folder, name)
        raw = read_bytes(path)
        if len(raw) % RECORD != 0:
            raise DataError(
                f"{path}: found {len(raw)} bytes; accepted is a multiple of {RECORD}: a label and "
                "32 x 32 red, green and blue pixels"
            )
        records = np.frombuffer(raw, np.uint8).reshape(-1, RECORD)
        pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        parts.append(as_images(pixels, records[:, 0], path))
    return Images(
        torch.cat([part.pixels for part in parts]), torch.cat([part.classes for part in parts])
    )


def as_images(pixels: Pixels, classes: Pixels, path: Path) -> Images:
    if len(classes) == 0:
        raise DataError(f"{path}: found no images; accepted is one or more")
    if classes.max() >= len(CLASSES):
        raise DataError(f"{path}: found the label {classes.max()}; accepted are 0 to 9")
    return Images(
        torch.from_numpy(np.array(pixels, order="C")), torch.from_numpy(classes.astype(np.int64))
    )


def find(folder: Path, name: str) -> Path:
    """The file of this name, or with .gz behind it."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(
        f"{folder / name}: missing, found {list_files(folder)}; accepted are {ACCEPTED}"
    )


def list_files(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:8]) + (" and more" if len(names) > 8 else "") or "no files"


def read_bytes(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: found a file that cannot be read: {error}; accepted is a whole one"
        ) from error


# The sites.


class Site:
    """A site's images and batches."""

    def __init__(self, images: Images, seed: int) -> None:
        self.images = images
        self.generator = torch.Generator().manual_seed(seed)

    def loss(self, model: nn.Module) -> torch.Tensor:
        """The loss on the next batch."""
        chosen = torch.randint(len(self.images), (BATCH,), generator=self.generator)
        batch = self.images.rows(chosen)
        return nn.functional.cross_entropy(model(batch.inputs()), batch.classes)


def divide(images: Images, split: str, alpha: float, seed: int) -> list[Images]:
    """The images of each site."""
    if split == "label":
        order = torch.argsort(images.classes, stable=True)
        return [images.rows(part) for part in torch.tensor_split(order, SITES)]
    # Each class in proportions from Dirichlet(alpha, ..., alpha), as `data.split` has it.
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        parts: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(SITES)]
        for one in range(len(CLASSES)):
            rows = rng.permutation(np.flatnonzero(images.classes.numpy() == one))
            ends = np.cumsum(rng.dirichlet([alpha] * SITES))[:-1] * len(rows)
            for part, more in zip(parts, np.split(rows, ends.astype(int)), strict=True):
                part.append(more)
        sites = [torch.from_numpy(np.concatenate(part)) for part in parts]
        if all(len(site) >= BATCH for site in sites):
            return [images.rows(site) for site in sites]
    raise DataError(
        f"--alpha {alpha}: 1000 draws left a site with fewer than {BATCH} images; accepted is a "
        "larger number"
    )


def build(seed: int) -> nn.Module:
    """68,362 parameters, the same initial values at every site.

    GroupNorm, because the statistics of a BatchNorm differ between sites with other classes (Hsieh
    et al. 2020, The Non-IID Data Quagmire of Decentralized Machine Learning).
    """
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    before = 3
    for width in (24, 48, 96):
        layers += [
            nn.Conv2d(before, width, 3, padding=1),
            nn.MaxPool2d(2),
            nn.GroupNorm(width // 8, width),
            nn.ReLU(),
        ]
        before = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * 4 * 4, len(CLASSES)))


class Trainer:
    """SGD with momentum, whose step size falls to 0 along half a cosine.

    With a constant one, models of sites with other classes end far from each other: by label,
    d-psgd's mean had 51.3%, but the sites' own models 36.6% in the mean.
    """

    def __init__(self, model: nn.Module, steps: int, rate: float) -> None:
        self.model = model
        self.inner = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.inner, steps)

    def step(self, sites: list[Site]) -> float:
        """A step on the next batch of each of these sites; returns the loss."""
        self.inner.zero_grad()
        total = 0.0
        for site in sites:
            loss = site.loss(self.model) / len(sites)
            loss.backward()
            total += loss.item()
        self.inner.step()
        self.schedule.step()
        return total


def accuracy(model: nn.Module, images: Images) -> dict[str, float]:
    """The share of right answers."""
    right = 0
    with torch.no_grad():
        for rows in torch.split(torch.arange(len(images)), 500):
            part = images.rows(rows)
            right += int((model(part.inputs()).argmax(dim=1) == part.classes).sum())
    return {"accuracy": right / len(images)}


# The ways.


@dataclass(frozen=True)
class Task:
    """What all ways train on."""

    #: The images of each site, and those of the test.
    parts: list[Images]
    test: Images
    rounds: int
    seed: int
    #: The step size at the beginning.
    rate: float = RATE
    #: Steps of SGD between two rounds.
    local_steps: int = STEPS

    @property
    def steps(self) -> int:
        return self.local_steps * self.rounds

    def sites(self) -> list[Site]:
        seeds = range(SITES * self.seed, SITES * (self.seed + 1))
        return [Site(part, seed) for part, seed in zip(self.parts, seeds, strict=True)]


def train_alone(task: Task, pooled: bool) -> float:
    """Training in one place: on the batches of all sites at once, or on those of one site, in the
    mean over the sites."""
    sites = task.sites()
    ends = []
    for used in [sites] if pooled else [[site] for site in sites]:
        trainer = Trainer(build(task.seed), task.steps, task.rate)
        for _ in range(task.steps):
            trainer.step(used)
        ends.append(accuracy(trainer.model, task.test)["accuracy"])
    return sum(ends) / len(ends)


def train_together(task: Task, rule: Settings, evaluations: int = 1) -> gradvine.Simulation:
    """All four sites. ``task.rounds`` counts whole rounds, also for a rule with shorter ones."""
    sites = task.sites()
    model = build(task.seed)
    trainers = [Trainer(model, task.steps, task.rate) for _ in sites]

    # A fragment of the model travels in each round of streaming-diloco.
    parts = int(rule.get("rule.fragments", 1))

    def train(node: int, model: nn.Module) -> float:
        losses = [trainers[node].step([sites[node]]) for _ in range(task.local_steps // parts)]
        return sum(losses) / len(losses)

    experiment: Settings = {
        "run.rounds": task.rounds * parts,
        "run.evaluate_every": max(task.rounds * parts // evaluations, 1),
        "run.seed": task.seed,
        "network.compute": "fixed",
        "network.compute_ms": STEP_MS * task.local_steps / parts,
        "topology.file": RING,
        **rule,
    }
    return gradvine.simulate(
        experiment,
        model,
        train,
        rows=[len(part) for part in task.parts],
        evaluate=lambda model: accuracy(model, task.test),
    )


#: The rules to compare; alone and pooled are training in one place.
WAYS: dict[str, tuple[str, Settings | None]] = {
    "alone": ("alone, mean of sites", None),
    "pooled": ("pooled", None),
    "d-psgd": ("d-psgd", {"rule.kind": "d-psgd"}),
    "choco": (
        "choco, 4 bits",
        {"rule.kind": "choco", "compressor.kind": "min-max", "compressor.bits": 4},
    ),
    "noloco": ("noloco", {"rule.kind": "noloco"}),
    "gasloc": ("gasloc", {"rule.kind": "gasloc"}),
    "sparse-loco": (
        "sparse-loco, 2 %",
        {
            "rule.kind": "sparse-loco",
            "rule.collective": "all-to-all",
            "topology.file": ALL_PAIRS,
            "compressor.kind": "top-k",
            "compressor.fraction": 0.02,
        },
    ),
    "streaming-diloco": (
        "streaming-diloco, 4 bits",
        {
            "rule.kind": "streaming-diloco",
            "rule.collective": "all-to-all",
            "rule.fragments": FRAGMENTS,
            "topology.file": ALL_PAIRS,
            "compressor.kind": "min-max",
            "compressor.bits": 4,
        },
    ),
    "diloco": ("diloco, all-reduce", {"rule.kind": "diloco", "topology.file": ALL_PAIRS}),
}


def print_split(parts: list[Images]) -> None:
    """How many images of each class each site has."""
    print(f"{'':<12}" + "".join(f"{one:>6}" for one in CLASSES))
    for name, part in zip(gradvine.topology(RING).nodes, parts, strict=True):
        counts = torch.bincount(part.classes, minlength=len(CLASSES)).tolist()
        print(f"{name:<12}" + "".join(f"{count:>6}" for count in counts))
    print()


def positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text}: accepted is a number above 0")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help=ACCEPTED)
    parser.add_argument("--split", choices=["label", "dirichlet"], default="label")
    parser.add_argument("--alpha", type=positive, default=0.3, help="of --split dirichlet")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--rate", type=positive, default=RATE, help="step size of SGD")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        images, test = load(arguments.data)
        parts = divide(images, arguments.split, arguments.alpha, arguments.seed)
    except DataError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    task = Task(parts, test, arguments.rounds, arguments.seed, arguments.rate)
    print_split(parts)
    print(f"{'':<26}{'accuracy':>8}{'kB a round':>12}{'virtual':>10}{'took':>8}")
    for way in arguments.ways:
        begun, (name, rule) = time.monotonic(), WAYS[way]
        if rule is None:
            score, sent, virtual = train_alone(task, way == "pooled"), "-", "-"
        else:
            last = train_together(task, rule).curve[-1]
            score = last.measures["accuracy"]
            sent = f"{last.bytes_wire / task.rounds / SITES / 1e3:.0f}"
            virtual = f"{last.time_s:.0f} s"
        took = time.monotonic() - begun
        print(f"{name:<26}{score:>8.1%}{sent:>12}{virtual:>10}{took:>6.0f} s", flush=True)


if __name__ == "__main__":
    main()
