"""Exceptions. All of them derive from :class:`Error`, and carry what they know as fields."""

from __future__ import annotations

from pathlib import Path


class Error(Exception):
    """The base of gradvine's exceptions."""


class SetupError(Error, ValueError):
    """A file or a value is wrong, or it differs from that of another node."""

    def __init__(
        self,
        text: str,
        file: str | None = None,
        place: str | None = None,
        value: str | None = None,
        problem: str | None = None,
    ) -> None:
        super().__init__(text)
        #: The file that the value comes from.
        self.file = file
        #: The key, such as ``compressor.bits``, or another place.
        self.place = place
        #: The value, as it was written.
        self.value = value
        #: What is wrong with it, and what would be accepted.
        self.problem = problem


class RunError(Error, RuntimeError):
    """The run could not continue. The results so far are in :attr:`folder`."""

    def __init__(
        self,
        text: str,
        node: str | None = None,
        rounds: int | None = None,
        awaited: list[str] | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(text)
        #: The name of the node that failed first.
        self.node = node
        #: The round that this node had reached.
        self.rounds = rounds
        #: The names of the nodes that were awaited when a deadline passed.
        self.awaited = awaited or []
        #: The run directory.
        self.folder = folder


class RunInterrupted(RunError):
    """The run was asked to stop before its last round."""


class RunLeft(RunError):
    """This node was asked to leave (``gradvine leave``); the others continue."""


class RunIncomplete(RunError):
    """All rounds are done and the models are saved, but records of nodes are missing."""


class StateError(Error, RuntimeError):
    """A call at the wrong time: after the end, from a second thread, or in a forked process."""


class UpdateError(Error, ValueError):
    """An update that cannot be passed on. The node has not seen it: mend it and call again, or end
    the run for all nodes with :meth:`Node.fail`."""

    def __init__(
        self,
        text: str,
        tensor: str | None = None,
        index: int | None = None,
        value: float | None = None,
    ) -> None:
        super().__init__(text)
        #: The name of the tensor.
        self.tensor = tensor
        #: The position of the first wrong number within the flattened tensor.
        self.index = index
        #: The number.
        self.value = value
