"""Compares the rules of text.py or cifar.py between four regions, with three seeds, as a page.

    python study.py text --out ../../docs
    python study.py cifar --data FOLDER --out ../../docs

The page is OUT/results/torch-TASK.md, its picture OUT/img/results/torch-TASK.svg (needs
matplotlib). Each finished run is kept in OUT/results/torch-TASK.jsonl, so an interrupted study
continues. What is expected was written down before the first run. It takes an hour and a half on
two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import gradvine

SEEDS = [1, 2, 3]
EVALUATIONS = 8


@dataclass(frozen=True)
class Point:
    """All nodes at one moment of a run."""

    #: In rounds of as many steps as those of the task.
    rounds: float
    time_s: float
    #: MB that a node has sent, in the mean.
    sent: float
    #: The loss or the share of errors of the mean model on the test.
    score: float


@dataclass(frozen=True)
class Expectation:
    """``left`` ends with a score, or sends bytes, below ``factor`` times those of ``right``."""

    words: str
    left: str
    right: str
    factor: float
    what: str = "score"


@dataclass(frozen=True)
class Task:
    """What is trained."""

    title: str
    here: str
    score: str
    #: The points of a way and a seed; one without time for training in one place.
    run: Callable[[str, int], list[Point]]
    #: Keys and names.
    ways: dict[str, str]
    #: Scores whose times the page tells.
    targets: list[float]
    expected: list[Expectation]
    notes: list[str]


def points(end: gradvine.Simulation, rounds: int, nodes: int, measure: str) -> list[Point]:
    last = end.curve[-1].rounds
    return [
        Point(
            one.rounds / last * rounds,
            one.time_s,
            one.bytes_wire / nodes / 1e6,
            1.0 - one.measures[measure] if measure == "accuracy" else one.measures[measure],
        )
        for one in end.curve
    ]


def expect(together: list[str]) -> list[Expectation]:
    """What both tasks are expected to show."""
    alone = "{} trains a better model than one region alone"
    return [
        *(Expectation(alone.format(way), way, "alone", 1) for way in together),
        Expectation("CHOCO with 4 bits loses less than 2 % to D-PSGD", "choco", "d-psgd", 1.02),
        Expectation("with less than a sixth of its bytes", "choco", "d-psgd", 1 / 6, "sent"),
        Expectation("An outer momentum helps: NoLoCo", "noloco", "d-psgd", 1),
        Expectation("An outer momentum helps: GASLoC", "gasloc", "d-psgd", 1),
        Expectation(
            "GASLoC with two neighbours is within 5 % of DiLoCo's all-reduce",
            "gasloc",
            "diloco",
            1.05,
        ),
        Expectation(
            "Streaming DiLoCo with 4 bits is within 5 % of DiLoCo",
            "streaming-diloco",
            "diloco",
            1.05,
        ),
        Expectation(
            "with less than a third of its bytes", "streaming-diloco", "diloco", 1 / 3, "sent"
        ),
        Expectation("SparseLoCo is within 10 % of DiLoCo", "sparse-loco", "diloco", 1.1),
        Expectation(
            "with less than a twentieth of its bytes", "sparse-loco", "diloco", 1 / 20, "sent"
        ),
    ]


def text_task() -> Task:
    import text

    rounds = 24

    def run(way: str, seed: int) -> list[Point]:
        rule = text.WAYS[way][1]
        if rule is None:
            loss = text.train_alone(text.STEPS * rounds, way == "pooled", seed)
            return [Point(rounds, 0.0, 0.0, loss)]
        end = text.train_together(rule, rounds, seed, EVALUATIONS)
        return points(end, rounds, len(text.PACKAGES), "loss")

    together = [way for way, (_, rule) in text.WAYS.items() if rule is not None]
    return Task(
        title="A transformer on text that differs between four regions",
        here=(
            "A transformer of two blocks with some 130,000 parameters predicts the next character "
            "of source text; each of four regions has another package of Python's library. AdamW "
            f"inside, {text.STEPS} steps of {text.DEFAULT.step_ms:.0f} ms a round, {rounds} rounds "
            f"({text.FRAGMENTS} rounds of {text.STEPS // text.FRAGMENTS} steps for each of them "
            "with streaming-diloco). Links between London, Ohio, California and Tokyo are "
            "simulated; gradients are those of torch. The score is the loss on text of all four "
            "packages that nobody trains on. The program is `examples/python/text.py`."
        ),
        score="test loss",
        run=run,
        ways={way: name for way, (name, _) in text.WAYS.items()},
        targets=[2.2, 2.0, 1.8, 1.6],
        expected=expect(together),
        notes=[
            f"sparse-loco sends 64 of 4096 numbers in a round: after {rounds} rounds at most "
            f"{rounds / 64:.0%} of the numbers have been sent. AdamW changes all numbers by about "
            "as much, so the largest hold a small part of a change, and the others wait in the "
            "memory. The paper trains for many more rounds. With SGD inside, whose changes are "
            "concentrated, a hundred rounds are enough (`examples/python/cifar.py`).",
            "pooled sees the batches of all regions in each step, four times the rows of a region.",
        ],
    )


def cifar_task(folder: Path) -> Task:
    import cifar

    rounds = 100
    images, test = cifar.load(folder)
    # diloco's outer momentum multiplies a step by seven.
    rates = {"diloco": cifar.RATE / 4}

    def run(way: str, seed: int) -> list[Point]:
        parts = cifar.divide(images, "dirichlet", 0.3, seed)
        task = cifar.Task(parts, test, rounds, seed, rates.get(way, cifar.RATE))
        rule = cifar.WAYS[way][1]
        if rule is None:
            return [Point(rounds, 0.0, 0.0, 1 - cifar.train_alone(task, way == "pooled"))]
        end = cifar.train_together(task, rule, EVALUATIONS)
        return points(end, rounds, cifar.SITES, "accuracy")

    together = [way for way, (_, rule) in cifar.WAYS.items() if rule is not None]
    return Task(
        title="A convolutional network on pictures whose classes differ between four regions",
        here=(
            f"A network of 68,362 parameters on {len(images)} pictures of CIFAR-10; the share of "
            "each class at each of four regions is drawn from Dirichlet(0.3). SGD with momentum "
            f"inside, {cifar.STEPS} steps of {cifar.STEP_MS:.0f} ms a round, {rounds} rounds "
            f"({cifar.FRAGMENTS} rounds of {cifar.STEPS // cifar.FRAGMENTS} steps for each of them "
            "with streaming-diloco). Links between London, Ohio, California and Tokyo are "
            "simulated; gradients are those of torch. The score is the share of wrong answers of "
            f"the mean model on {len(test)} other pictures. The program is "
            "`examples/python/cifar.py`."
        ),
        score="test error",
        run=run,
        ways={way: name for way, (name, _) in cifar.WAYS.items()},
        targets=[0.55, 0.5, 0.45],
        expected=expect(together),
        notes=[
            f"The step size begins at {cifar.RATE}, with diloco at {rates['diloco']}: its outer "
            "momentum multiplies a step by seven, and with the step size of the others it ends "
            "below d-psgd (figures in the program). No other step sizes were tried.",
            "pooled sees the batches of all regions in each step, four times the rows of a region.",
        ],
    )


Runs = dict[str, dict[int, list[Point]]]


def run_all(task: Task, path: Path) -> Runs:
    """The runs that the file has, and those that it lacks."""
    found: Runs = {way: {} for way in task.ways}
    if path.exists():
        for line in path.read_text().splitlines():
            one = json.loads(line)
            found.setdefault(one["way"], {})[one["seed"]] = [Point(**p) for p in one["points"]]
    for seed in SEEDS:
        for way in task.ways:
            if seed in found[way]:
                continue
            begun = time.monotonic()
            found[way][seed] = task.run(way, seed)
            kept: dict[str, Any] = {"way": way, "seed": seed}
            kept["points"] = [vars(point) for point in found[way][seed]]
            with path.open("a") as file:
                file.write(json.dumps(kept) + "\n")
            score = found[way][seed][-1].score
            took = time.monotonic() - begun
            print(f"seed {seed} {way:<26}{score:>8.4f}{took:>6.0f} s", flush=True)
    return found


def ends(runs: dict[int, list[Point]], what: str) -> list[float]:
    return [getattr(runs[seed][-1], what) for seed in SEEDS]


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def reached(moments: list[Point], target: float) -> Point | None:
    """Where a curve falls to the target first, on straight lines; or its first point."""
    if moments[0].score <= target:
        return moments[0]
    for before, after in itertools.pairwise(moments):
        if after.score <= target < before.score:
            part = (before.score - target) / (before.score - after.score)
            values = {
                key: value + part * (getattr(after, key) - value)
                for key, value in vars(before).items()
            }
            return Point(**values)
    return None


def time_to(runs: dict[int, list[Point]], target: float) -> str:
    """The virtual time and the rounds to a target, as means over the seeds."""
    found = [reached(runs[seed], target) for seed in SEEDS]
    there = [one for one in found if one is not None]
    if len(there) < len(found):
        return f"not reached in {len(found) - len(there)} of {len(found)}"
    rounds = statistics.mean(one.rounds for one in there)
    return f"{spread([one.time_s for one in there], 1)} s; {rounds:.0f} rounds"


def judge(one: Expectation, runs: Runs) -> str:
    """Agrees or not if all seeds say the same."""
    left, right = (ends(runs[way], one.what) for way in (one.left, one.right))
    ratios = [a / b for a, b in zip(left, right, strict=True)]
    below = sum(ratio < one.factor for ratio in ratios)
    verdict = {0: "**disagrees**", len(SEEDS): "agrees"}.get(below, "**undecided**")
    words = f"{min(ratios):.3f} to {max(ratios):.3f} (below {one.factor:.3f} expected)"
    return f"- {one.words} — {verdict}. {one.left} to {one.right}: {words}"


def write_page(task: Task, runs: Runs, name: str) -> str:
    lines = [
        f"# {task.title}",
        "",
        f"**Here.** {task.here} Torch {torch.__version__.split('+')[0]}, seeds "
        f"{', '.join(map(str, SEEDS))}; ± is one standard deviation.",
        "",
        f"| | {task.score} | MB sent by a node | virtual time |",
        "|---|---:|---:|---:|",
    ]
    for way, name_of_way in task.ways.items():
        scores, last = ends(runs[way], "score"), [runs[way][seed][-1] for seed in SEEDS]
        sent, virtual = "", ""
        if last[0].time_s > 0:
            sent = f"{statistics.mean(one.sent for one in last):.2f}"
            virtual = f"{statistics.mean(one.time_s for one in last):.0f} s"
        lines.append(f"| {name_of_way} | {spread(scores, 3)} | {sent} | {virtual} |")
    lines += [
        "",
        f"Virtual time and rounds to a {task.score} of the mean model, on straight lines between "
        f"{EVALUATIONS} evaluations, or at the first of them:",
        "",
        "".join(f"| {target} " for target in ["", *task.targets]) + "|",
        "|---|" + "---:|" * len(task.targets),
        *(
            "".join(f"| {cell} " for cell in [name_of_way, *cells]) + "|"
            for way, name_of_way in task.ways.items()
            if len(runs[way][SEEDS[0]]) > 1
            for cells in [[time_to(runs[way], target) for target in task.targets]]
        ),
        "",
        f"![The {task.score} by rounds, bytes and time](../img/results/{name}.svg)",
        "",
        "## What was expected",
        "",
        *(judge(one, runs) for one in task.expected),
        "",
        "## Notes",
        "",
        "\n\n".join(task.notes),
        "",
    ]
    return "\n".join(lines)


def draw(
    score: str,
    curves: dict[str, list[list[Point]]],
    path: Path,
    *,
    alone: str,
    columns: int = 4,
    log: tuple[str, ...] = ("rounds", "sent", "time_s"),
    top: float | None = None,
    target: float | None = None,
) -> None:
    """Score by rounds, by bytes and by time: the mean over the seeds, and their range. Training in
    one place, such as that of the curve `alone`, has one point."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gradvine"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.6), sharey=True, layout="constrained")
    axes_of = [("rounds", "rounds"), ("sent", "MB sent by a node"), ("time_s", "seconds")]
    for axis, (key, label) in zip(axes, axes_of, strict=True):
        for number, (words, runs) in enumerate(curves.items()):
            moments = list(zip(*runs, strict=True))
            scores = [[one.score for one in moment] for moment in moments]
            means = [statistics.mean(s) for s in scores]
            if len(means) == 1:
                style = "--" if words == alone else ":"
                axis.axhline(means[0], linestyle=style, color="black", linewidth=1, label=words)
                continue
            x = [statistics.mean(getattr(one, key) for one in moment) for moment in moments]
            line = axis.plot(x, means, label=words, color=f"C{number}")
            low, high = [min(s) for s in scores], [max(s) for s in scores]
            axis.fill_between(x, low, high, alpha=0.15, color=line[0].get_color(), linewidth=0)
        if target is not None:
            axis.axhline(target, color="0.7", linewidth=0.8)
        axis.set_xscale("log" if key in log else "linear")
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(score)
    axes[0].set_ylim(top=top)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def draw_task(task: Task, runs: Runs, path: Path) -> None:
    curves = {words: [runs[way][seed] for seed in SEEDS] for way, words in task.ways.items()}
    # A rule that begins far above would flatten the others.
    highest = max(one.score for of in curves.values() for moments in of for one in moments)
    top = min(1.4 * statistics.mean(ends(runs["alone"], "score")), 1.05 * highest)
    draw(task.score, curves, path, alone=task.ways["alone"], columns=5, log=("sent",), top=top)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=["text", "cifar"])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of cifar.py")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.task == "cifar" and arguments.data is None:
        parser.error("cifar needs --data FOLDER")
    torch.set_num_threads(1)
    task = text_task() if arguments.task == "text" else cifar_task(arguments.data)
    name = f"torch-{arguments.task}"
    results = arguments.out / "results"
    results.mkdir(parents=True, exist_ok=True)
    runs = run_all(task, results / f"{name}.jsonl")
    draw_task(task, runs, arguments.out / "img" / "results" / f"{name}.svg")
    (results / f"{name}.md").write_text(write_page(task, runs, name))


if __name__ == "__main__":
    main()
