"""Training loops that end without a word: signals, exceptions that nothing catches, cells that
fail. The neighbour learns it at once, or after the deadline of an absence."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradvine
from conftest import everywhere, model
from gradvine import _endings
from test_processes import start


def neighbour(file: Path) -> gradvine.RunError:
    """Rounds until the run ends, which may be before this node has seen that all are linked; the
    error."""
    with pytest.raises(gradvine.RunError) as error:
        joined = gradvine.join(file, model(), rows=1)
        while not joined.done:
            joined.update[:] = 0.0
            joined.round()
    return error.value


def beside(files: list[Path], program: str, during=lambda process: None) -> tuple:
    """Runs a program as the first node, and the second one here; returns the program's exit code,
    its standard error, and the error of the second."""

    def run(node: int, file: Path):
        if node == 1:
            return neighbour(file)
        process = start(file, program)
        assert process.stdout is not None
        assert process.stdout.readline() == "linked\n"
        during(process)
        _, err = process.communicate(timeout=40)
        return process.returncode, err

    (code, err), error = everywhere(files, run)
    return code, err, error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_program_that_is_terminated_leaves(nodes, number):
    def terminate(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(number)

    # In a wait of the training loop, or in a call.
    program = "print('waits', flush=True); time.sleep(60)"
    code, err, error = beside(nodes("path:2"), program, terminate)
    assert code == 128 + number, err
    assert error.node == "0" and "left the run" in str(error)


def test_a_program_that_is_terminated_in_a_round_leaves(nodes):
    files = nodes("path:3")
    program = "print('waits', flush=True); node.round()"

    def run(node: int, file: Path):
        if node == 0:
            process = start(file, program)
            assert process.stdout is not None
            assert process.stdout.readline() == "linked\n"
            assert process.stdout.readline() == "waits\n"
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=40)
            assert process.returncode == 128 + signal.SIGTERM, err
            ended.set()
            return
        joined = gradvine.join(file, model(), rows=1)
        # Without an update of this node the round of the first one does not end.
        assert node == 2 or ended.wait(40)
        with pytest.raises(gradvine.RunError, match="0"):
            while not joined.done:
                joined.update[:] = 0.0
                joined.round()

    ended = threading.Event()
    everywhere(files, run)


def test_signals_have_their_usual_effect_without_a_run():
    program = """
import os, signal, sys, time
from gradvine import _endings
_endings.watch(tuple)
print("ready", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=40)
    assert process.returncode == -signal.SIGTERM


def test_an_exception_that_nothing_catches_ends_the_run_with_its_reason(nodes):
    code, err, error = beside(nodes("path:2"), "raise OSError('the camera is gone')")
    assert code == 1 and "Traceback" in err
    assert error.node == "0" and "OSError: the camera is gone" in str(error)


def test_an_exception_in_a_thread_ends_the_run_with_its_reason(nodes):
    program = """
        import threading

        def train():
            node.update[:] = 0.0
            node.round()
            raise OSError("the camera is gone")

        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        time.sleep(60)
    """
    ended = threading.Event()

    def run(node: int, file: Path):
        if node == 1:
            error = neighbour(file)
            ended.set()
            return error
        process = start(file, program)
        # The program continues without its thread.
        assert ended.wait(40)
        process.kill()
        return process.communicate()

    _, error = everywhere(nodes("path:2"), run)
    assert error.node == "0" and "OSError: the camera is gone" in str(error)


class Shell:
    """IPython's shell, as far as its events go."""

    def __init__(self) -> None:
        self.hooks: dict[str, list] = {}
        self.events = self

    def register(self, event: str, hook) -> None:
        self.hooks.setdefault(event, []).append(hook)

    def run(self, cell) -> None:
        for hook in self.hooks["pre_run_cell"]:
            hook(None)
        error = None
        try:
            cell()
        except Exception as raised:  # noqa: BLE001
            error = raised
        for hook in self.hooks["post_run_cell"]:
            hook(types.SimpleNamespace(error_in_exec=error))


@pytest.fixture
def shell(monkeypatch) -> Iterator[Shell]:
    """A notebook around this process."""
    shell = Shell()
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    _endings._watch_notebook()
    yield shell


def test_a_cell_that_failed_can_be_mended(nodes, shell, caplog):
    """Other cells do not matter."""
    caplog.set_level(logging.WARNING)
    files = nodes("path:2", {"absence.deadline_s": 600})

    def run(node: int, file: Path) -> gradvine.Result:
        joined = gradvine.join(file, model(), rows=1)

        def loop(until: int) -> None:
            while not joined.done:
                joined.update[:] = 0.0
                joined.round()
                if joined.rounds == until:
                    raise OSError("the camera is gone")

        if node == 0:
            shell.run(lambda: 1 / 0)
            assert "is still in the run" not in caplog.text
            shell.run(lambda: loop(3))
            assert "node 0 is still in the run" in caplog.text
            assert "without a call within 600 s" in caplog.text
        loop(-1)
        return joined.finish()

    results = everywhere(files, run)
    assert results[0].digest == results[1].digest


def test_after_a_failed_cell_the_others_wait_as_long_as_for_a_node_that_is_away(nodes, shell):
    files = nodes("path:2", {"absence.deadline_s": 1})

    def run(node: int, file: Path) -> gradvine.RunError | None:
        if node == 1:
            return neighbour(file)
        joined = gradvine.join(file, model(), rows=1)

        def loop() -> None:
            joined.update[:] = 0.0
            joined.round()
            raise OSError("the camera is gone")

        shell.run(loop)
        open_.append(joined)
        return None

    open_: list[gradvine.Node] = []
    _, error = everywhere(files, run)
    assert error is not None and error.node == "0"
    assert "OSError: the camera is gone (its program has not continued since)" in str(error)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_of_multiprocessing_leaves(nodes, tmp_path, method):
    """It ends by `os._exit`, without what is registered with atexit."""
    program = tmp_path / "program.py"
    program.write_text("""
import multiprocessing, sys

def work(file):
    import numpy as np
    import gradvine
    model = {"weight": np.zeros((2, 4), np.float32), "bias": np.full(2, 0.5, np.float32)}
    node = gradvine.join(file, model, rows=1)
    node.update[:] = 0.0
    node.round()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    process = context.Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
""")

    def run(node: int, file: Path):
        if node == 1:
            return neighbour(file)
        command = [sys.executable, str(program), str(file), method]
        return subprocess.run(command, timeout=60, check=True)

    _, error = everywhere(nodes("path:2"), run)
    assert error.node == "0" and "left the run" in str(error)


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_a_forked_child_is_terminated_as_usual(nodes):
    program = """
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, b"x")
            # A signal just before a sleep is handled after it.
            for _ in range(600):
                time.sleep(0.1)
            os._exit(0)
        os.read(read, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        raise OSError(f"child: {os.WTERMSIG(status)}")
    """
    _, _, error = beside(nodes("path:2"), program)
    assert f"child: {int(signal.SIGTERM)}" in str(error) and os.getpid() > 0
