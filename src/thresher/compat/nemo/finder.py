# SPDX-License-Identifier: Apache-2.0
"""Let `import nemo_curator.…` find Thresher: a finder of modules whose names are resolved when they are first used.

`THRESHER_COMPAT=nemo_curator` in the environment installs it at `import thresher`, so that worker processes have it as
well: they import modules of the user that import `nemo_curator`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

from thresher.compat.nemo.table import known_modules, names_of, not_there

ENABLED = "THRESHER_COMPAT"
"""Environment variable that installs the finder at `import thresher`."""
REPLACES = "THRESHER_COMPAT_REPLACE"
"""Environment variable that lets the finder win over an installed NeMo Curator; 1: yes."""
ORIGINAL = "nemo_curator"
VERSION = "1.4.0"
"""Release whose names the table has; what scripts read as `nemo_curator.__version__`."""
ALIAS = "thresher.compat.nemo_curator"
"""Package of ours below which the same modules are found, whatever is installed."""


class CompatFinder:
    """Meta-path finder for `nemo_curator` and its submodules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module that stands for one of NeMo Curator's; `None` for all other modules."""
        del path, target
        original = original_name(fullname)
        if original is None or fullname == ALIAS:
            return None
        if original not in known_modules() and not not_there(original):
            return None
        loader: Any = _Loader(original)  # what it must be is a class whose module need not be loaded for this
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=True)


class _Loader:
    """Loader of one module of names."""

    def __init__(self, original: str) -> None:
        self.original = original

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """Leave making the module to Python."""
        del spec
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Fill the module: nothing is loaded before a name is used."""
        original, name = self.original, module.__name__
        names = names_of(original)
        namespace: dict[str, Any] = vars(module)

        def load(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
            if attribute not in names and f"{original}.{attribute}" in known_modules():
                return importlib.import_module(f"{name}.{attribute}")
            value = namespace[attribute] = load_name(original, attribute)
            return value

        if original == ORIGINAL:
            namespace["__version__"] = VERSION
        namespace |= {
            "__doc__": f"Names of `{original}`, as Thresher has them.",
            "__all__": sorted(names),
            "__getattr__": load,
            "__dir__": lambda: sorted({*names, *namespace}),
        }


def original_name(fullname: str) -> str | None:
    """Return the name of NeMo Curator's module for a module of either package; `None` for any other module."""
    if fullname == ORIGINAL or fullname.startswith(f"{ORIGINAL}."):
        return fullname
    if fullname == ALIAS or fullname.startswith(f"{ALIAS}."):
        return ORIGINAL + fullname.removeprefix(ALIAS)
    return None


def load_name(module: str, name: str) -> Any:
    """Return what stands for `name` of NeMo Curator's `module`; the error says what there is instead."""
    from thresher.compat.nemo.arguments import adapted
    from thresher.compat.nemo.table import missing_name

    target = names_of(module).get(name)
    if target is None:
        raise missing_name(module, name)
    return adapted(module, name, target)


def install(*, replace: bool | None = None) -> None:
    """Let `import nemo_curator` find Thresher, here and in processes that this one starts.

    An installed NeMo Curator is found first. `replace=True`, or `THRESHER_COMPAT_REPLACE=1`, makes ours win.
    """
    if replace is None:
        replace = os.environ.get(REPLACES, "") not in ("", "0")
    loaded = sys.modules.get(ORIGINAL)
    if replace and loaded is not None and not isinstance(getattr(loaded.__spec__, "loader", None), _Loader):
        from thresher.errors import UsageError

        raise UsageError(
            "the installed nemo_curator is already imported and cannot be replaced; import thresher.compat.nemo_curator"
            f" first, or set {ENABLED}={ORIGINAL} and {REPLACES}=1 before Python starts"
        )
    os.environ[ENABLED] = ORIGINAL
    finders: list[Any] = sys.meta_path
    finders[:] = [finder for finder in finders if not isinstance(finder, CompatFinder)]
    if replace:
        os.environ[REPLACES] = "1"
        finders.insert(0, CompatFinder())
    else:
        finders.append(CompatFinder())


def install_from_environment() -> None:
    """Install the finder if the environment wants it; any other value than the names of curators is refused."""
    wanted = os.environ.get(ENABLED, "")
    if wanted == ORIGINAL:
        install()
    elif wanted not in ("", "0"):
        from thresher.errors import UsageError

        raise UsageError(f"{ENABLED}={wanted!r} in the environment is not one of: {ORIGINAL}")


def installed_original() -> bool:
    """Return True if NeMo Curator itself is installed and wins."""
    found = importlib.util.find_spec(ORIGINAL)
    return found is not None and not isinstance(found.loader, _Loader)
