# SPDX-License-Identifier: Apache-2.0
"""From scores to decisions: percentiles, ensembles of scores, and buckets of quality."""
