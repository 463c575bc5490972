# SPDX-License-Identifier: Apache-2.0
"""Access to the texts of a batch, and helpers that stages share."""
