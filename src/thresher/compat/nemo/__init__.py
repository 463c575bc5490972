# SPDX-License-Identifier: Apache-2.0
"""NeMo Curator's names: the table, the arguments that differ, and what stands in for classes that we have no own of."""
