# SPDX-License-Identifier: Apache-2.0
"""Token ids in the indexed data sets that Megatron-Core trains on: pairs of a .bin and an .idx file."""
