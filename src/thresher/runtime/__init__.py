# SPDX-License-Identifier: Apache-2.0
"""Running a plan: the driver (the only loop), what a worker does, and how tasks travel between processes."""
