# SPDX-License-Identifier: Apache-2.0
"""Stages that add a vector of each text."""
