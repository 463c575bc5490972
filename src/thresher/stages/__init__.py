# SPDX-License-Identifier: Apache-2.0
"""The stages that ship with Thresher, one stage, rule set or family of rules per file."""
