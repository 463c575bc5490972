# SPDX-License-Identifier: Apache-2.0
"""Stages that choose documents of a corpus: by rank, by group, by weight."""
