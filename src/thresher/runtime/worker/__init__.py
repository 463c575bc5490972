# SPDX-License-Identifier: Apache-2.0
"""The work on a task: call stages, settle which records their results hold, and count."""
