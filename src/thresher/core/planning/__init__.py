# SPDX-License-Identifier: Apache-2.0
"""Turn a pipeline into a plan for one run: check, expand, fuse into ops, and fingerprint it."""
