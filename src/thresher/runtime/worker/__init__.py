# SPDX-License-Identifier: Apache-2.0
"""What a worker does with a task: calls stages, settles whose records the results are, and counts."""
