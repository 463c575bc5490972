# SPDX-License-Identifier: Apache-2.0
"""Files that a deduplication writes between its phases."""
