# SPDX-License-Identifier: Apache-2.0
"""The run folder: choosing, locking, checking and resuming it."""
