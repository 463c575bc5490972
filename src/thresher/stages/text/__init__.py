# SPDX-License-Identifier: Apache-2.0
"""Stages that work on text, and the rules and modifiers that they apply."""
