"""A node with numpy: rounds, results, errors."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import gradvine
from conftest import Bowl, everywhere, model, until


def descend(file: Path, node: int, rounds: int | None = None) -> gradvine.Result:
    """Gradient descent on a bowl."""
    bowl = Bowl(node)
    with gradvine.join(file, model(), rows=1) as joined:
        while not joined.done and (rounds is None or joined.rounds < rounds):
            bowl.step(joined)
        return joined.finish()


def test_rounds_follow_the_equation_of_the_rule(nodes):
    """D-PSGD with the dense W of a ring of 3, in f64."""
    files = nodes("ring:3", {"run.rounds": 20, "rule.order": "cta"})
    results = everywhere(files, lambda node, file: descend(file, node))
    w = np.full((3, 3), 1 / 3)
    x = np.tile(np.concatenate([np.zeros(8), np.full(2, 0.5)]), (3, 1))
    centres = np.stack([Bowl(node).centre.astype(np.float64) for node in range(3)])
    for _ in range(20):
        # Lian et al. 2017: x_i <- sum_j W_ij x_j - step * gradient at x_i.
        x = w @ x - 0.25 * (x - centres)
    for node, result in enumerate(results):
        np.testing.assert_allclose(result.model, x[node], rtol=0, atol=1e-5)
        np.testing.assert_allclose(result.mean, x.mean(axis=0), rtol=0, atol=1e-5)
        assert result.rounds == 20
        assert result.digest == results[0].digest != ""
        assert result.participation.keys() == {"0", "1", "2"}


@pytest.mark.parametrize(
    "rule",
    [
        {"rule.order": "cta"},
        {"rule.kind": "choco", "rule.order": "iclr", "compressor.kind": "min-max"},
        {"rule.kind": "delayed", "rule.delay": 1},
    ],
)
def test_rounds_overlap_with_training_where_the_rule_allows_it(nodes, rule):
    """A node gets the model for its next local steps while its neighbour still trains."""
    ahead = threading.Event()

    def run(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        with gradvine.join(file, model(), rows=1) as joined:
            if node == 1:
                assert ahead.wait(30), "the neighbour waits for this node's update"
            bowl.step(joined)
            ahead.set()
            while not joined.done:
                bowl.step(joined)
            return joined.finish()

    results = everywhere(nodes("path:2", {**rule, "run.rounds": 10}), run)
    assert results[0].digest == results[1].digest


def test_the_same_run_has_the_same_digest(nodes):
    keys = {"rule.kind": "choco", "compressor.kind": "min-max", "compressor.bits": 4}
    digests = {
        everywhere(nodes("ring:3", keys), lambda node, file: descend(file, node))[0].digest
        for _ in range(2)
    }
    assert len(digests) == 1


def test_copies_give_the_same_bits_as_lent_vectors(nodes):
    def copies(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        joined = gradvine.join(file, model(), rows=1)
        x = joined.x.copy()
        while x is not None:
            loss = float(((x - bowl.centre) ** 2).sum() / 2)
            x = joined.round_copy((x - bowl.centre) * np.float32(0.25), loss, 0.25)
        return joined.finish()

    lent = everywhere(nodes("ring:3"), lambda node, file: descend(file, node))
    copied = everywhere(nodes("ring:3"), copies)
    assert [result.digest for result in lent] == [result.digest for result in copied]


def test_an_early_end_ends_all_nodes_after_the_same_round(nodes):
    files = nodes("ring:4", {"run.rounds": 500})
    results = everywhere(files, lambda node, file: descend(file, node, 7 if node == 2 else None))
    assert {result.rounds for result in results} == {results[0].rounds}
    assert 7 <= results[0].rounds < 20
    assert len({result.digest for result in results}) == 1


def test_arrays_that_are_kept_keep_their_numbers(nodes, caplog):
    def keep(node: int, file: Path) -> tuple[list[np.ndarray], list[np.ndarray], str]:
        bowl, kept, copies = Bowl(node), [], []
        joined = gradvine.join(file, model(), rows=1)
        while not joined.done:
            kept += [joined.x, joined.update]
            bowl.step(joined)
            copies += [kept[-2].copy(), kept[-1].copy()]
        return kept, copies, joined.finish().digest

    files = nodes("ring:3")
    ends = everywhere(files, keep)
    for kept, copies, digest in ends:
        assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))
        assert digest == ends[0][2]
    lent = everywhere(nodes("ring:3"), lambda node, file: descend(file, node))
    assert lent[0].digest == ends[0][2]


def test_x_is_read_only_and_update_is_not(nodes):
    def look(_: int, file: Path) -> None:
        with gradvine.join(file, model(), rows=1) as joined:
            assert joined.x.shape == joined.update.shape == (10,)
            with pytest.raises(ValueError, match="read-only"):
                joined.x[0] = 1.0
            joined.update[:] = 0.0
            while not joined.done:
                joined.round()
            joined.finish()

    everywhere(nodes("ring:3"), look)


def test_numbers_that_are_not_finite_are_refused_and_nothing_is_sent(nodes):
    def spoil(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        joined = gradvine.join(file, model(), rows=1)
        joined.update[:] = 0.0
        joined.update[9] = np.nan
        with pytest.raises(gradvine.UpdateError, match=r"bias\[1\] of the update is nan") as error:
            joined.round(0.0)
        assert (error.value.tensor, error.value.index) == ("bias", 1)
        with pytest.raises(gradvine.UpdateError, match="9 numbers: expected 10"):
            joined.round_copy(np.zeros(9))
        with pytest.raises(gradvine.SetupError, match="Step::size"):
            joined.round(0.0, -1.0)
        assert joined.rounds == 0
        while not joined.done:
            bowl.step(joined)
        return joined.finish()

    spoiled = everywhere(nodes("ring:3"), spoil)
    clean = everywhere(nodes("ring:3"), lambda node, file: descend(file, node))
    assert spoiled[0].digest == clean[0].digest


def errors_of(files, work) -> list[Exception]:
    """The exception of each node."""

    def run(node: int, file: Path) -> Exception:
        with pytest.raises(gradvine.Error) as error:
            work(node, file)
        return error.value

    return everywhere(files, run)


def test_models_that_differ_are_refused_with_both_values(nodes):
    def join(node: int, file: Path) -> None:
        shape = (2, 5) if node == 1 else (2, 4)
        gradvine.join(file, {"weight": np.zeros(shape, np.float32)}, rows=1)

    for error in errors_of(nodes("path:2"), join):
        assert isinstance(error, gradvine.SetupError)
        assert "10" in str(error) and "8" in str(error), error


def test_agreed_values_that_differ_are_refused_with_both_values(nodes):
    def join(node: int, file: Path) -> None:
        gradvine.join(file, model(), rows=1, agreed={"tokenizer": f"v{node}"})

    for error in errors_of(nodes("path:2"), join):
        assert "model.tokenizer" in str(error) and "v0" in str(error) and "v1" in str(error)


def test_models_that_cannot_be_trained_are_refused(nodes):
    (file, _) = nodes("path:2")
    for wrong, text in [
        ({}, "at least one array"),
        ({"a": np.zeros(2, np.int64)}, "model.a = int64"),
    ]:
        with pytest.raises(gradvine.SetupError, match=text):
            gradvine.join(file, wrong, rows=1)
    with pytest.raises(gradvine.SetupError, match="rows = 0"):
        gradvine.join(file, model(), rows=0)
    with pytest.raises(gradvine.SetupError, match="missing.toml"):
        gradvine.join(file.with_name("missing.toml"), model(), rows=1)


def test_experiments_are_checked_before_files_are_written(tmp_path):
    keys = {"run.rounds": 3, "topology.file": "ring:3", "rule.kind": "choco"}

    def write(**more: object) -> list[Path]:
        further = {key.replace("__", "."): value for key, value in more.items()}
        return gradvine.local_nodes(tmp_path / "nodes", {**keys, **further})

    for more, text in [
        ({"rule__kind": "dpsgd"}, 'rule.kind = "dpsgd".*d-psgd'),
        ({"compressor__kind": "min-max", "compressor__bits": 99}, "compressor.bits = 99"),
        ({"compressor__kind": "min-max", "rule__colour": 1}, "rule.colour"),
        ({"run__rounds": 0}, "run.rounds = 0"),
        ({"data__source": "digits"}, "data.source: has no effect"),
        ({"data": {"source": "digits"}}, "data.source: has no effect"),
        ({"optimizer": {"step": 0.1}}, "optimizer.step: has no effect"),
    ]:
        with pytest.raises(gradvine.SetupError, match=text):
            write(**more)
        assert not (tmp_path / "nodes").exists()
    # It has an effect: nodes count by their rows.
    files = write(compressor__kind="min-max", data__weighting="rows")
    assert "rows" in (files[0].parents[1] / "experiment.toml").read_text()
    with pytest.raises(gradvine.SetupError, match="^compressor.bits = 99"):
        gradvine.plan(
            keys, model(), settings=[{"compressor.kind": "min-max", "compressor.bits": 99}]
        )


def test_results_have_the_names_of_the_tensors(nodes):
    for result in everywhere(nodes("path:2"), lambda node, file: descend(file, node)):
        state = result.state_dict()
        assert {name: value.shape for name, value in state.items()} == {
            "weight": (2, 4),
            "bias": (2,),
        }
        assert np.array_equal(np.concatenate([one.ravel() for one in state.values()]), result.mean)
        assert np.array_equal(result.state_dict(result.model)["bias"], result.model[8:])


def test_a_missing_node_is_named_when_the_deadline_passes(nodes):
    file, _ = nodes("path:2", {"run.connect_s": 1})
    with pytest.raises(gradvine.RunError, match="missing.*1|1") as error:
        gradvine.join(file, model(), rows=1)
    assert error.value.awaited == ["1"]


def test_a_second_node_with_the_same_key_is_refused_and_the_first_goes_on(nodes):
    files = nodes("path:2")
    second = []

    def join(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        joined = gradvine.join(file, model(), rows=1)
        if node == 0:
            with pytest.raises(gradvine.Error) as error:
                gradvine.join(file, model(), rows=1)
            second.append(str(error.value))
        while not joined.done:
            bowl.step(joined)
        return joined.finish()

    results = everywhere(files, join)
    assert results[0].digest == results[1].digest
    assert second and "run" in second[0]


def test_calls_at_the_wrong_time_raise(nodes):
    def misuse(node: int, file: Path) -> None:
        bowl = Bowl(node)
        joined = gradvine.join(file, model(), rows=1)
        while not joined.done:
            bowl.step(joined)
        assert joined.x.shape == (0,)
        with pytest.raises(gradvine.RunError, match="are over"):
            joined.round(0.0)
        result = joined.finish()
        assert joined.finish() is result
        joined.close()
        with pytest.raises(gradvine.StateError, match="closed"):
            joined.round(0.0)

    everywhere(nodes("path:2"), misuse)


def test_a_second_thread_is_refused_while_a_call_waits(nodes):
    begun = threading.Event()

    def join(node: int, file: Path) -> None:
        joined = gradvine.join(file, model(), rows=1)
        if node == 1:
            # The other node waits for this one.
            begun.wait(20)
        else:
            waits = threading.Thread(target=lambda: Bowl(0).step(joined), daemon=True)
            waits.start()
            time.sleep(0.2)
            with pytest.raises(gradvine.StateError, match="another thread"):
                joined.round(0.0)
            begun.set()
            waits.join()
        bowl = Bowl(node)
        while not joined.done:
            bowl.step(joined)
        joined.finish()

    everywhere(nodes("path:2"), join)


def test_a_loop_that_fails_ends_the_run_for_all_with_its_reason(nodes):
    def fail(node: int, file: Path) -> None:
        bowl = Bowl(node)
        with gradvine.join(file, model(), rows=1) as joined:
            while not joined.done:
                if node == 1 and joined.rounds == 3:
                    raise OSError("the camera is gone")
                bowl.step(joined)

    files = nodes("ring:3")
    ends: list[BaseException | None] = [None] * 3

    def run(node: int, file: Path) -> None:
        try:
            fail(node, file)
        except Exception as error:  # noqa: BLE001
            ends[node] = error

    everywhere(files, run)
    assert isinstance(ends[1], OSError)
    for node in (0, 2):
        assert isinstance(ends[node], gradvine.RunError), ends[node]
        assert "the camera is gone" in str(ends[node])
        assert ends[node].node == "1"


def test_measures_and_evaluations_are_in_the_files_of_all(nodes):
    def measure(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        joined = gradvine.join(file, model(), rows=3)
        while not joined.done:
            joined.measure(temperature=20.0 + node)
            bowl.step(joined)
        return joined.finish(lambda x: {"norm": float(np.linalg.norm(x))})

    results = everywhere(nodes("ring:3"), measure)
    for result in results:
        measures = result.metrics["measures"]["norm"]
        assert measures["of_mean"] == pytest.approx(float(np.linalg.norm(result.mean)))
        lines = [
            json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()
        ]
        assert lines and all("temperature" in line["measures"] for line in lines), lines
        assert {path.name for path in result.files} >= {"summary.json", "model-mean.safetensors"}


def test_the_run_is_watched_from_the_folder_of_each_node(nodes):
    """`gradvine status` reads what a node knows of all from its run folder."""
    files = nodes("ring:3", {"run.rounds": 20})
    everywhere(files, lambda node, file: descend(file, node))
    for node, file in enumerate(files):
        [known] = Path(file).parent.rglob("status.json")
        network = json.loads(known.read_text())
        assert network["state"] == "done" and network["version"] == 1
        assert network["nodes"][node]["round"] == 20


def test_an_evaluation_that_raises_does_not_harm_the_run(nodes):
    def measure(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        joined = gradvine.join(file, model(), rows=3)
        while not joined.done:
            bowl.step(joined)
        if node == 1:
            with pytest.raises(ZeroDivisionError):
                joined.finish(lambda x: 1 / 0)
        return joined.finish(lambda x: 1.0)

    results = everywhere(nodes("path:2"), measure)
    assert results[0].digest == results[1].digest


def test_nodes_report_their_names_rounds_and_bytes(nodes):
    def look(node: int, file: Path) -> None:
        bowl = Bowl(node)
        with gradvine.join(file, model(), rows=1) as joined:
            assert joined.name == str(node)
            assert joined.nodes == ["0", "1", "2"]
            assert joined.neighbours == [name for name in joined.nodes if name != joined.name]
            assert joined.rule == "d-psgd"
            assert joined.tensors == [("weight", (2, 4)), ("bias", (2,))]
            for _ in range(5):
                bowl.step(joined)
            report = joined.report
            assert report.round == 5 and report.loss > 0.0
            # Two neighbours, ten numbers of four bytes, five rounds.
            assert report.bytes_payload == 2 * 10 * 4 * 5
            while not joined.done:
                bowl.step(joined)
            joined.finish()
            assert "round 20" in repr(joined)

    everywhere(nodes("ring:3"), look)


def test_rounds_can_be_awaited(nodes):
    async def train(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        joined = await asyncio.to_thread(gradvine.join, file, model(), rows=1)
        while not joined.done:
            np.multiply(joined.x - bowl.centre, np.float32(0.25), out=joined.update)
            await joined.round_async(0.0, 0.25)
        return await asyncio.to_thread(joined.finish)

    async def all_nodes(files: list[Path]) -> list[gradvine.Result]:
        return await asyncio.gather(*(train(node, file) for node, file in enumerate(files)))

    results = asyncio.run(all_nodes(nodes("ring:3")))
    assert len({result.digest for result in results}) == 1


def test_log_lines_reach_logging(nodes, caplog):
    caplog.set_level(logging.INFO)
    file, _ = nodes("path:2", {"run.connect_s": 1})
    with pytest.raises(gradvine.RunError):
        gradvine.join(file, model(), rows=1)
    ours = lambda record: record.name.startswith("gradvine.")  # noqa: E731
    until("a record of the node", lambda: any(map(ours, caplog.records)))
