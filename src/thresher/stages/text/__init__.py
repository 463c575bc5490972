# SPDX-License-Identifier: Apache-2.0
"""Stages that process text, and the rules and modifiers that they apply."""
