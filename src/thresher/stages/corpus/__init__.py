# SPDX-License-Identifier: Apache-2.0
"""Stages that need the whole corpus: order, groups, and results over all records."""
