# SPDX-License-Identifier: Apache-2.0
"""The stages that ship with Thresher, one stage or rule set per file."""
