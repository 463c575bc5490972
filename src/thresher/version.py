# SPDX-License-Identifier: Apache-2.0
"""The version of the package, in a module of its own so that reading it loads nothing else."""

__version__ = "0.1.0"
