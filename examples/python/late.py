"""Two sites begin a run; a third one, which is late, joins them while it continues.

    python late.py                      # starts three processes on this machine
    python late.py --site node.toml     # one site

Every site knows one point, and all look for the model with the least mean squared distance to the
points: their mean. It prints, besides log lines (the round depends on the machine):

    2 of 3 sites have started
    the third site joins after 300 rounds
    members: round 0: 0 1; round 300: 0 1 2;
    the model is [1. 2.], the same at all: True
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import gradvine

POINTS = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]], np.float32)
STEP = np.float32(0.05)

EXPERIMENT = {
    "topology.file": "complete:3",
    "rule.kind": "d-psgd",
    "run.rounds": 1000,
    # Two sites are enough to begin, and to continue if one is away for 5 seconds.
    "run.start": {"quorum": 2, "within_s": 2.0},
    "absence.policy": "continue",
    "absence.deadline_s": 5.0,
    # A site that is late is taken in at the next checkpoint.
    "checkpoint.every_rounds": 50,
}


def train_site(file: str) -> None:
    """One site: the whole program of a machine."""
    point = POINTS[int(Path(file).parent.name)]
    node = gradvine.join(file, {"x": np.zeros(2)}, rows=1)
    print(json.dumps({"begins": node.rounds}), flush=True)
    while not node.done:
        time.sleep(0.02)
        # A smaller step, the later the round: a site that is late has to start there, too.
        step = STEP / (1 + node.rounds / 100)
        node.update[:] = step * (node.x - point)
        node.round(size=float(step))
    result = node.finish()
    changes = [[change["round"], change["members"]] for change in result.history]
    print(json.dumps({"mean": result.mean.tolist(), "changes": changes}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", metavar="FILE", help="run one site with its node.toml")
    arguments = parser.parse_args()
    if arguments.site:
        train_site(arguments.site)
        return
    with tempfile.TemporaryDirectory() as folder:
        files = gradvine.local_nodes(Path(folder) / "sites", EXPERIMENT)

        def start(file: Path) -> subprocess.Popen[str]:
            command = [sys.executable, __file__, "--site", str(file)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        def read(site: subprocess.Popen[str]) -> dict[str, object]:
            assert site.stdout is not None
            return json.loads(site.stdout.readline())

        sites = [start(file) for file in files[:2]]
        began = [read(site) for site in sites]
        print(f"{len(began)} of 3 sites have started", flush=True)
        time.sleep(5)
        sites.append(start(files[2]))
        print(f"the third site joins after {read(sites[2])['begins']} rounds", flush=True)
        ends = [read(site) for site in sites]
    print("members:", *(f"round {at}: {' '.join(who)};" for at, who in ends[0]["changes"]))
    print(f"the model is {np.round(ends[0]['mean'], 2)}, the same at all: {ends[1:] == ends[:-1]}")


if __name__ == "__main__":
    main()
