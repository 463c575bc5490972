# SPDX-License-Identifier: Apache-2.0
"""Run a model on token ids: devices, batches, and the two runtimes."""
