# SPDX-License-Identifier: Apache-2.0
"""Documents: batches of records, their ids and raw lines, and conversions from and to what users hold."""
