# SPDX-License-Identifier: Apache-2.0
"""Execution of a plan: the driver loop, the workers, and the transport of tasks between processes."""
