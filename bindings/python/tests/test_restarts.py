"""Programs that are killed and started again, and nodes that stay away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradvine

#: One site: prints its rounds as they are done, and its results.
SITE = """
import json, sys, time
import numpy as np
import gradvine

file, node = sys.argv[1], int(sys.argv[2])
centre = np.arange(10, dtype=np.float32) * np.float32(0.1) + np.float32(node)
joined = gradvine.join(file, {"x": np.zeros(10, np.float32)}, rows=1)
print(json.dumps({"joined": joined.rounds}), flush=True)
while not joined.done:
    time.sleep(0.02)
    np.multiply(joined.x - centre, np.float32(0.25), out=joined.update)
    joined.round(0.0, 0.25)
    print(json.dumps({"round": joined.rounds}), flush=True)
result = joined.finish()
print(json.dumps({
    "digest": result.digest,
    "rounds": result.rounds,
    "participation": result.participation,
    "history": result.history,
    "resumed": joined.report.resumed,
}), flush=True)
"""


#: The same with AdamW, a schedule, running statistics, and noise from torch's generator; batches
#: by `sync.steps`.
TORCH_SITE = """
import json, sys, time
import torch
import gradvine

file, node = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
torch.set_num_threads(1)
device = "cpu"
model = torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)).to(device)
rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(node)).to(device)
joined = gradvine.join(file, model, rows=40, every=2)
print(json.dumps({"joined": joined.rounds}), flush=True)
inner = torch.optim.AdamW(model.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.StepLR(inner, step_size=150, gamma=0.5)
torch.manual_seed(100 + node)
noise = torch.default_generator if device == "cpu" else torch.cuda.default_generators[0]
keep = [schedule, noise]
sync = gradvine.attach(joined, model, inner, keep=keep)
if sync.resumed:
    schedule.step()
while not sync.done:
    time.sleep(0.01)
    x = rows[sync.steps % 10 :: 10]
    inner.zero_grad()
    target = x[:, :2] * node + 0.1 * torch.randn(len(x), 2, device=device)
    loss = torch.nn.functional.mse_loss(model(x), target)
    loss.backward()
    inner.step()
    schedule.step()
    if sync.synced:
        print(json.dumps({"round": joined.rounds}), flush=True)
result = gradvine.finish(sync)
print(json.dumps({
    "digest": result.digest,
    "rounds": result.rounds,
    "restarts": result.participation[str(node)].get("restarts", 0),
    "resumed": joined.report.resumed,
    "left": [path.name for path in result.folder.glob("training*")],
}), flush=True)
"""


class Site:
    """One program, which may be started again."""

    def __init__(self, file: Path, node: int, program: str = SITE) -> None:
        self.file, self.node, self.program = file, node, program
        self.start()

    def start(self) -> None:
        # Not a pipe: nobody reads it while lines of standard output are awaited.
        self.errors = self.file.with_name("stderr.txt")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", self.program, str(self.file), str(self.node)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def line(self) -> dict:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.errors.read_text()
        return json.loads(text)

    def until(self, round: int) -> None:
        """Reads lines until this round is done."""
        while self.line().get("round", 0) < round:
            pass

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def result(self) -> dict:
        line: dict = {}
        while "digest" not in line:
            line = self.line()
        assert self.process.wait(timeout=60) == 0, self.errors.read_text()
        return line


@pytest.fixture
def sites(nodes):
    started: list[Site] = []

    def make(topology: str, keys: dict, program: str = SITE) -> list[Site]:
        often = {"checkpoint.every_rounds": 10, "run.rounds": 200, "run.evaluate_every": 50}
        files = nodes(topology, {**often, **keys})
        made = [Site(file, node, program) for node, file in enumerate(files)]
        started.extend(made)
        return made

    yield make
    for site in started:
        site.process.kill()
        site.process.wait()


RULE = {"rule.kind": "choco", "compressor.kind": "min-max", "compressor.bits": 4}


def test_a_killed_program_goes_on_with_the_same_bits(sites, nodes):
    """Training here keeps nothing beside the model, so the bits are those without a failure."""
    run = sites("ring:3", RULE)
    run[1].until(60)
    run[1].kill()
    run[1].start()
    joined = run[1].line()["joined"]
    assert 0 < joined < 61, "it resumes from a checkpoint"
    results = [site.result() for site in run]
    assert len({result["digest"] for result in results}) == 1
    assert results[0]["rounds"] == 200 and results[0]["resumed"] == 1
    assert results[0]["participation"]["1"]["restarts"] == 1
    undisturbed = sites("ring:3", RULE)
    assert undisturbed[0].result()["digest"] == results[0]["digest"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("rule", [{"rule.kind": "noloco"}, {**RULE, "rule.order": "iclr"}])
def test_moments_schedules_and_noise_are_put_back(sites, rule, device):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    program = TORCH_SITE.replace('device = "cpu"', f'device = "{device}"', 1)
    keys = {**rule, "run.rounds": 60}
    run = sites("path:2", keys, program)
    run[1].until(25)
    run[1].kill()
    run[1].start()
    assert 0 < run[1].line()["joined"] < 26
    results = [site.result() for site in run]
    assert [result["restarts"] for result in results] == [0, 1]
    assert results[0]["resumed"] == 1 and not results[0]["left"]
    undisturbed = sites("path:2", keys, program)
    assert undisturbed[0].result()["digest"] == results[0]["digest"]


def test_a_broken_link_names_the_node_at_its_other_end(sites, nodes):
    """Its program was killed, and is not started again before the deadline."""
    first, second = nodes("path:2", {"absence.deadline_s": 1, "run.rounds": 200})
    site = Site(second, 1)
    try:
        joined = gradvine.join(first, {"x": np.zeros(10, np.float32)}, rows=1)
        site.until(0)
        site.kill()
        with pytest.raises(gradvine.RunError) as error:
            while not joined.done:
                joined.update[:] = 0.0
                joined.round()
        assert (error.value.node, error.value.awaited) == ("1", ["1"]), error.value
    finally:
        site.kill()


class Planted:
    """An object whose state is a program, as pickles may have."""

    def __reduce__(self):
        return print, ("planted",)


def test_a_planted_state_is_not_run(tmp_path, caplog, capfd):
    torch = pytest.importorskip("torch")
    from gradvine._keep import Keeper

    class Fake:
        _about = {"folder": tmp_path, "checkpoint_every_rounds": 1}

    inner = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
    keeper = Keeper(Fake(), [inner], False)
    keeper.save(1, 10)
    assert keeper.restore(1) == 10
    state = {"steps": 1, "objects": [Planted()]}
    torch.save(state, tmp_path / "training" / "round-000000000002.pt")
    assert keeper.restore(2) is None
    assert "planted" not in capfd.readouterr().out and "weights_only" in caplog.text


def test_states_are_kept_as_they_are(tmp_path):
    torch = pytest.importorskip("torch")
    from gradvine._keep import Keeper

    class Fake:
        _about = {"folder": tmp_path, "checkpoint_every_rounds": 1}

    class Batches:
        """An object of the program's own, with numbers of numpy."""

        def __init__(self) -> None:
            self.dice = np.random.Generator(np.random.MT19937(3))

        def state_dict(self):
            return {"dice": self.dice.bit_generator.state, "place": (np.int64(3), None, "a")}

        def load_state_dict(self, state) -> None:
            self.dice.bit_generator.state = state["dice"]
            assert state["place"] == (3, None, "a")

    batches = Batches()
    keeper = Keeper(Fake(), [batches, torch.Generator().manual_seed(2)], False)
    keeper.save(1, 10)
    expected = batches.dice.random(5)
    assert keeper.restore(1) == 10
    assert np.array_equal(batches.dice.random(5), expected)

    class Strange(Batches):
        def state_dict(self):
            return {"file": tmp_path}

    with pytest.raises(gradvine.SetupError, match=r"keep: Strange: .* pathlib\..*Path"):
        Keeper(Fake(), [Strange()], False)


def test_a_program_that_is_started_after_the_end_gets_the_results(sites):
    run = sites("path:2", {**RULE, "run.rounds": 20})
    results = [site.result() for site in run]
    run[0].start()
    assert run[0].line() == {"joined": 20}
    again = run[0].result()
    assert (again["digest"], again["rounds"]) == (results[0]["digest"], 20)


def test_the_others_go_on_without_a_node_that_stays_away(sites):
    away = {"absence.policy": "continue", "absence.deadline_s": 1}
    run = sites("ring:3", {**RULE, **away})
    run[2].until(50)
    run[2].kill()
    results = [site.result() for site in run[:2]]
    assert results[0]["digest"] == results[1]["digest"]
    assert results[0]["rounds"] == 200 and len(results[0]["history"]) == 1
    assert results[0]["history"][0]["members"] == ["0", "1"]
