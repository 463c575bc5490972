# SPDX-License-Identifier: Apache-2.0
"""Phases that find and cut repeated parts of texts."""
