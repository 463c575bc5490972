# SPDX-License-Identifier: Apache-2.0
"""Nodes, their free resources, and the placement of workers."""
