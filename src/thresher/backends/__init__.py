# SPDX-License-Identifier: Apache-2.0
"""Executors: each runs the same plan on another kind of cluster."""
