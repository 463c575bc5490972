# SPDX-License-Identifier: Apache-2.0
"""Configurations of other tools, translated into recipes, with a note for everything that could not be."""
