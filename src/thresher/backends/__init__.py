# SPDX-License-Identifier: Apache-2.0
"""Bodies for the one scheduler: each runs the same plan on something else."""
