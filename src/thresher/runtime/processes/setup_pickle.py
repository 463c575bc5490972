# SPDX-License-Identifier: Apache-2.0
"""Serialization of a worker's setup: cloudpickle, with the classes and functions of the user's main script by value.

These are also defined in the main module of the processes that load the setup, under their own names. Plain pickle then
finds them there, so tasks of user-defined classes cost no more than others, and a class is the same class in every
process.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import FunctionType
from typing import Any

from thresher.credentials import message_of
from thresher.errors import PlanError
from thresher.stage_errors import ControlSignal


def dump_setup(setup: Any) -> bytes:
    """Return a setup as bytes, with the definitions of the main script that it uses."""
    import cloudpickle

    found: dict[str, Any] = {}

    class Collector(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no types
        """Pickler that collects the definitions at the top level of the main script."""

        def reducer_override(self, thing: Any) -> Any:
            """Collect classes and functions; called for everything that is not plain data."""
            if isinstance(thing, type | FunctionType) and thing.__module__ == "__main__":
                name: str = thing.__qualname__
                if vars(sys.modules["__main__"]).get(name) is thing:
                    found[name] = thing
            return super().reducer_override(thing)

    file = io.BytesIO()
    pickler = Collector(file, protocol=5)
    try:
        pickler.dump(setup)
        pickler.dump(found)
    except ControlSignal:
        raise
    except (Exception, SystemExit) as error:  # a user's own __reduce__ may raise anything
        raise PlanError(
            f"the stages cannot be sent to workers: {message_of(error)}. Keep open files, locks, connections and "
            "models out of a stage's constructor; make them in setup(), which runs in each worker"
        ) from error
    return file.getvalue()


def load_setup(data: bytes) -> Any:
    """Load a setup, and define the names of the main script in this process's main module."""
    unpickler = pickle.Unpickler(io.BytesIO(data))
    setup = unpickler.load()
    vars(sys.modules["__main__"]).update(unpickler.load())
    return setup
