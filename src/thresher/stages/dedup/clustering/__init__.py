# SPDX-License-Identifier: Apache-2.0
"""Phases that find clusters of duplicates, and keep one document of each."""
