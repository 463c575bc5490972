# SPDX-License-Identifier: Apache-2.0
"""The cleaning rules of C4."""
