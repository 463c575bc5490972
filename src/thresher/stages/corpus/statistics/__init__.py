# SPDX-License-Identifier: Apache-2.0
"""Stages that make numbers of a whole corpus, and classes of values for charts."""
