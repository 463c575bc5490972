# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a run: measurement, the minimum for a plan, splitting of batches, and admission of large
records."""
