# SPDX-License-Identifier: Apache-2.0
"""Rules about words and tokens."""
