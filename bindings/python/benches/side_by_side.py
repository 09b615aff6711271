"""The same training with gradvine, DistributedDataParallel and hivemind, on two processes here.

    python benches/side_by_side.py
    python benches/side_by_side.py --python-hivemind ~/hivemind/bin/python

The programs are in `side_by_side/`: a plain loop of one process, and the same loop with each tool.
What is counted, and how:

- statements: those of each program that the plain loop does not have, or has otherwise, by
  `difflib`. A statement counts as one line however it is laid out; comments do not count, nor do
  lines that only measure.
- bytes: the loopback interface of a network namespace of the run's own, which needs root or user
  namespaces; else that of the whole machine, and the table says so. Both directions between the
  sites, with the headers of TCP and IP and what a tool says beside the model.
- steps: the mean of a round's steps; hivemind decides by time when a round ends.
- time: from the end of a round to the end of the next one, with the steps between them; the median
  of the slower site. "Besides training" is the median of that time without the steps, as the plain
  loop takes for them in two processes without any exchange at the same time: noise can make it
  less than 0.
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import difflib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_suffix("")

#: Parameters, rounds after each step, rounds after many steps.
MODELS = {"digits": (38_282, 1000, 20), "wide": (10_000_000, 40, 10)}

#: Local steps between two rounds, where a method has them.
MANY = 50

#: Rounds that are left out: buffers are made and connections get fast.
WARM_UP = 2

#: Seconds after which a run is stopped: its rounds so far count.
LIMIT_S = 120.0


@dataclass(frozen=True)
class Case:
    """A program with its settings."""

    name: str
    tool: str
    program: str
    every: int = 1
    #: Of gradvine: what the experiment says besides the number of rounds.
    experiment: Mapping[str, str | int] = field(default_factory=dict)
    #: Of hivemind: further options of its optimizer.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The model that it is for, if not for all.
    only: str | None = None


def gradvine_case(name: str, every: int, rule: str, **compressor: str | int) -> Case:
    experiment = {"topology.file": "path:2", "rule.kind": rule}
    further = {f"compressor.{key}": value for key, value in compressor.items()}
    return Case(f"gradvine {name}", "gradvine", "gradvine_.py", every, experiment | further)


def hivemind_case(name: str, every: int, only: str | None = None, **options: Any) -> Case:
    return Case(f"hivemind, {name}", "hivemind", "hivemind_.py", every, options=options, only=only)


LOCAL: dict[str, Any] = {"use_local_updates": True}
#: A group is complete with two peers, and does not wait.
PAIR = LOCAL | {"averager_opts": {"target_group_size": 2}}

CASES = [
    Case("plain, no exchange", "plain", "plain.py"),
    Case("DDP, gloo", "ddp", "ddp.py"),
    gradvine_case("c-sgd", 1, "c-sgd"),
    gradvine_case("d-psgd", 1, "d-psgd"),
    gradvine_case("choco, 4 bits", 1, "choco", kind="min-max", bits=4),
    gradvine_case("d-psgd", MANY, "d-psgd"),
    gradvine_case("choco, 4 bits", MANY, "choco", kind="min-max", bits=4),
    gradvine_case("diloco", MANY, "diloco"),
    hivemind_case("local updates", MANY, **LOCAL),
    hivemind_case("groups of two", MANY, **PAIR),
    # By default gradients of all batches since the last step are averaged, then the parameters.
    hivemind_case("synchronous", MANY),
    hivemind_case("local updates", 20 * MANY, only="digits", **LOCAL),
    hivemind_case("groups of two", 20 * MANY, only="digits", **PAIR),
]

#: What has to be there besides the program, for two sites.
BESIDE = {
    "ddp": "an address and a port of rank 0 that all can reach, and a rank for each process; all "
    "start again if one stops. torchrun, which sets the ranks, was not used",
    "gradvine": "at each site a key, node.toml, and the same topology.toml (keys and addresses of "
    "all) and experiment.toml. No further program",
    "hivemind": "the address of one peer, which the others are told; each peer starts a process "
    "for the DHT, one for averaging, and the program p2pd",
}

#: How an interpreter tells which version it has.
VERSIONS = {
    "plain": "import torch; print('torch', torch.__version__)",
    "ddp": "import torch, torch.distributed as d; assert d.is_gloo_available(), 'torch has no gloo'"
    "; print('torch', torch.__version__)",
    "gradvine": "import gradvine, torch; print('gradvine', gradvine.__version__)",
    "hivemind": "import hivemind, torch; print('hivemind', hivemind.__version__, '(torch',"
    " torch.__version__ + ')')",
}


@dataclass
class Outcome:
    """What one run of two sites gave."""

    problem: str | None = None
    rounds: int = 0
    steps: float = 0.0
    bytes: float = 0.0
    ms: float = 0.0
    #: The same without the steps.
    besides_ms: float = 0.0
    measure: float = 0.0
    #: Of both sites together, while they train.
    processes: int = 0
    ports: int = 0
    #: Whether both programs ended by themselves.
    ended: bool = True
    #: Of hivemind: rounds in which its log says that both peers took part.
    together: int | None = None


# --- what the programs say


def statements(program: str) -> list[str]:
    """A program's statements, each as one line, without those that only measure."""
    lines = (PROGRAMS / program).read_text().splitlines()
    tree = ast.parse("\n".join(line for line in lines if not line.endswith("# measuring")))
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return ast.unparse(tree).splitlines()


def difference(program: str) -> tuple[int, int, int]:
    """Statements that a program adds to the plain loop, changes in it, and removes from it."""
    before, after = statements("plain.py"), statements(program)
    added = changed = removed = 0
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind != "equal":
            both = min(last - first, end - begin)
            changed += both
            removed += last - first - both
            added += end - begin - both
    return added, changed, removed


def version(python: str, tool: str) -> tuple[str, bool]:
    """The version of a tool, or why it is not there; and whether it is there."""
    try:
        asked = subprocess.run(
            [python, "-W", "ignore", "-c", VERSIONS[tool]], capture_output=True, text=True
        )
    except OSError as error:
        return f"not installed: {error}", False
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"]
        return f"not installed: {said[-1]}", False
    return asked.stdout.strip().splitlines()[-1], True


# --- one run, in a network namespace of its own


def loopback_up() -> None:
    """Switches the loopback interface of a new network namespace on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, 0x8913, request))[1]
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", flags | 0x1))


def descendants(root: int) -> Iterator[int]:
    """A process and those that it has started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    left = [root]
    while left:
        process = left.pop()
        yield process
        left += children.get(process, [])


def listening() -> int:
    """TCP ports that wait for connections in this network namespace."""
    ports = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net") / table
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            words = line.split()
            if words[3] == "0A":
                ports.add(words[1].rpartition(":")[2])
    return len(ports)


def start(case: Case, model: str, rounds: int, python: str, folder: Path) -> list[Any]:
    """Starts the two sites."""
    os.environ |= {
        "BENCH_MODEL": model,
        "BENCH_EVERY": str(case.every),
        "BENCH_ROUNDS": str(rounds),
        "BENCH_LIMIT_S": str(LIMIT_S),
        "BENCH_FOLDER": str(folder),
        "BENCH_OPTIONS": json.dumps(dict(case.options)),
        "PYTHONPATH": os.pathsep.join(
            [str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        # DDP: rank 0 listens here.
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "2",
    }
    places = [folder, folder]
    if case.tool == "gradvine":
        import gradvine

        experiment = {**case.experiment, "run.rounds": rounds, "run.evaluate_every": rounds}
        places = [file.parent for file in gradvine.local_nodes(folder / "nodes", experiment)]
    command = [python, "-W", "ignore", str(PROGRAMS / case.program)]
    sites = []
    for site, place in enumerate(places):
        environment = os.environ | {"BENCH_SITE": str(site), "RANK": str(site)}
        log = folder / f"{site}.log"
        with log.open("w") as out:
            sites.append(
                subprocess.Popen(
                    command, cwd=place, env=environment, stdout=out, stderr=subprocess.STDOUT
                )
            )
        if case.tool == "hivemind" and site == 0:
            command += first_address(log, sites[0])
    return sites


def first_address(log: Path, site: subprocess.Popen[bytes]) -> list[str]:
    """The addresses that the first peer of hivemind prints."""
    while site.poll() is None:
        found = re.search(r"^initial_peers (.+)\n", log.read_text(), re.MULTILINE)
        if found is not None:
            return found[1].split()
        time.sleep(0.05)
    return []


def run_inside(case: Case, model: str, rounds: int, python: str, step_ms: float) -> Outcome:
    """Both sites of a case, from start to end."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sites = start(case, model, rounds, python, folder)
        ends = [folder / f"end-{site}.json" for site in range(2)]
        stop = time.monotonic() + LIMIT_S + 60.0
        looked = 0
        while not all(end.exists() for end in ends) and time.monotonic() < stop:
            if any(site.poll() not in (None, 0) for site in sites):
                break
            time.sleep(0.2)
            if looked < 3 and all((folder / f"ready-{site}").exists() for site in range(2)):
                looked += 1
                count = sum(len(list(descendants(site.pid))) for site in sites)
                outcome.processes = max(outcome.processes, count)
                outcome.ports = max(outcome.ports, listening())
        stop = time.monotonic() + 10.0
        while any(site.poll() is None for site in sites) and time.monotonic() < stop:
            time.sleep(0.1)
        outcome.ended = all(site.poll() == 0 for site in sites)
        for site in sites:
            for process in list(descendants(site.pid)) if site.poll() is None else []:
                os.kill(process, signal.SIGKILL)
            site.wait()
        logs = [(folder / f"{site}.log").read_text() for site in range(2)]
        if not all(end.exists() for end in ends):
            last = [log.strip().splitlines()[-1:] for log in logs]
            outcome.problem = f"failed: {last}"
            return outcome
        try:
            read(outcome, [json.loads(end.read_text()) for end in ends], step_ms)
        except ValueError as error:
            outcome.problem = f"failed: {error}"
        if case.tool == "hivemind":
            found = [len(re.findall(r"Averaged \w+ with 2 peers", log)) for log in logs]
            outcome.together = min(found)
    return outcome


def read(outcome: Outcome, ends: list[dict[str, Any]], step_ms: float) -> None:
    """What a round took after the first ones, at the slower site."""
    for end in ends:
        # After the last round the sites may already be exchanging results.
        marks = end["marks"][WARM_UP:-1]
        if len(marks) < 3:
            raise ValueError(f"{len(end['marks']) - 1} rounds within {LIMIT_S:.0f} s")
        pairs = list(zip(marks, marks[1:], strict=False))
        times = [(after[0] - before[0]) * 1e3 for before, after in pairs]
        steps = [after[2] - before[2] for before, after in pairs]
        ms = statistics.median(times)
        if ms > outcome.ms:
            outcome.ms = ms
            outcome.steps = statistics.mean(steps)
            outcome.besides_ms = statistics.median(
                time - count * step_ms for time, count in zip(times, steps, strict=True)
            )
            outcome.bytes = (marks[-1][1] - marks[0][1]) / len(pairs)
    outcome.rounds = min(len(end["marks"]) - 1 for end in ends)
    outcome.measure = statistics.mean(end["measure"] for end in ends)


def isolation() -> list[str]:
    """The command that gives a program a network namespace of its own, if there is one."""
    unshare = shutil.which("unshare")
    ways = [["--net"], ["--user", "--map-root-user", "--net"]]
    for way in ways if unshare else []:
        command = [str(unshare), *way, "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return []


def run(isolated: list[str], case: Case, **order: Any) -> Outcome:
    """A case in a process of its own, and in a namespace where that can be had."""
    order |= {"case": asdict(case)}
    done = subprocess.run(
        [*isolated, sys.executable, __file__, "--inside", json.dumps([bool(isolated), order])],
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        return Outcome(problem=f"failed: exit code {done.returncode}")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def inside(text: str) -> None:
    # If the script is ended, this process and with it its sites end too.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    isolated, order = json.loads(text)
    if isolated:
        loopback_up()
    order["case"] = Case(**order["case"])
    print(json.dumps(asdict(run_inside(**order))))


# --- tables


def print_programs(versions: Mapping[str, str]) -> None:
    print(f"{'':<26}{'statements that':<24}{'the plain loop has'}")
    print(f"{'program':<26}{'are new':>8}{'changed':>8}{'removed':>8}  {'version':<20}")
    for case in {case.program: case for case in CASES if case.tool != "plain"}.values():
        added, changed, removed = difference(case.program)
        said = versions[case.tool]
        print(f"{case.program:<26}{added:>8}{changed:>8}{removed:>8}  {said}")
    print(f"The plain loop has {len(statements('plain.py'))} statements.")
    print()
    for tool, text in BESIDE.items():
        print(f"beside {tool}: {text}")


def print_row(case: Case, one: Outcome) -> None:
    label = case.name if case.every == 1 else f"{case.name}, every {case.every}"
    if one.problem is not None:
        print(f"{label:<36}{one.problem}", flush=True)
        return
    besides = "" if case.tool == "plain" else f"{one.besides_ms:.1f}"
    notes = []
    if one.together is not None:
        notes.append(f"both peers in {one.together} averages")
    if not one.ended:
        notes.append("did not end by itself")
    print(
        f"{label:<36}{one.rounds:>6}{one.steps:>7.1f}{one.bytes:>13.0f}{one.ms:>10.1f}"
        f"{besides:>10}{one.measure:>9.4f}{one.processes:>6}{one.ports:>6}  {'; '.join(notes)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python-hivemind", metavar="PATH", default=sys.executable)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--cases", metavar="TEXT", default="", help="only names with this text")
    parser.add_argument("--shorter", type=int, default=1, help="divides the number of rounds")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        inside(arguments.inside)
        return

    pythons = {tool: sys.executable for tool in VERSIONS}
    pythons["hivemind"] = arguments.python_hivemind
    found = {tool: version(python, tool) for tool, python in pythons.items()}
    print_programs({tool: text for tool, (text, _) in found.items()})
    isolated = isolation()
    if not isolated:
        print("no network namespace: bytes are those of all programs of this machine")
    for model in arguments.models:
        parameters, short, long = MODELS[model]
        measure = "accuracy" if model == "digits" else "loss"
        print()
        print(f"{model}, {parameters} parameters")
        print(
            f"{'':<36}{'rounds':>6}{'steps':>7}{'bytes':>13}{'ms':>10}{'besides':>10}"
            f"{measure:>9}{'proc.':>6}{'ports':>6}"
        )
        print(f"{'':<49}{'a round':>13}{'a round':>10}{'training':>10}")
        step_ms = 0.0
        for case in CASES:
            if case.only not in (None, model):
                continue
            if case.tool != "plain" and arguments.cases not in case.name:
                continue
            text, there = found[case.tool]
            rounds = max((short if case.every == 1 else long) // arguments.shorter, WARM_UP + 4)
            if there:
                one = run(
                    isolated,
                    case,
                    model=model,
                    rounds=rounds,
                    python=pythons[case.tool],
                    step_ms=step_ms,
                )
            else:
                one = Outcome(problem=text)
            print_row(case, one)
            if case.tool == "plain" and one.problem is None:
                step_ms = one.ms


if __name__ == "__main__":
    main()
