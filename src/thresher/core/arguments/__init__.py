# SPDX-License-Identifier: Apache-2.0
"""Validation of the arguments of stages and executors."""
