# SPDX-License-Identifier: Apache-2.0
"""Building blocks of kernels: characters, words and hash tables."""
