# SPDX-License-Identifier: Apache-2.0
"""Optional packages of executors: which extra brings them, and what to say where one is missing."""

from __future__ import annotations

from thresher.errors import MissingPackageError

EXTRAS = {"ray": "ray", "cosmos_xenna": "xenna"}
"""Name of the module to the extra of Thresher that installs it."""


def require_package(module: str, who: str) -> None:
    """Refuse, for `who` (such as `executor 'ray'`), where the module is not installed; nothing is imported."""
    from importlib.util import find_spec  # here: who asks for no package does not pay for it

    found = find_spec(module)
    if found is None or found.origin is None:  # a folder of that name in the current one is no package
        raise missing_package(module, who)


def missing_package(module: str, who: str) -> MissingPackageError:
    """The refusal: which package, and how to get it."""
    package = module.replace("_", "-")
    return MissingPackageError(f"{who} needs the package {package}: pip install 'thresher[{EXTRAS[module]}]'")
