# SPDX-License-Identifier: Apache-2.0
"""How a worker's setup travels: by cloudpickle, with the classes and functions of the user's main script by value.

Those are also put into the main module of the processes that load the setup, under their own names. From then on plain
pickle finds them there, so tasks of the user's own classes cost no more than others, and a class is the same class
everywhere.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import FunctionType
from typing import Any

from thresher.errors import PlanError


def dump_setup(setup: Any) -> bytes:
    """A setup as bytes, and what it holds of the main script."""
    import cloudpickle

    found: dict[str, Any] = {}

    class Collector(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no types
        """Notes what is defined at the top of the main script."""

        def reducer_override(self, thing: Any) -> Any:
            """Called for everything that is no plain data."""
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
    except Exception as error:  # a user's own __reduce__ may raise anything
        raise PlanError(
            f"the stages cannot be sent to workers: {error}. Keep open files, locks, connections and models out of a "
            "stage's constructor; make them in setup(), which runs in each worker"
        ) from error
    return file.getvalue()


def load_setup(data: bytes) -> Any:
    """The setup; the names of the main script become names of this process's main module."""
    unpickler = pickle.Unpickler(io.BytesIO(data))
    setup = unpickler.load()
    vars(sys.modules["__main__"]).update(unpickler.load())
    return setup
