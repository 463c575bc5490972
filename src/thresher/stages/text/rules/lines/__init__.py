# SPDX-License-Identifier: Apache-2.0
"""Rules about lines, paragraphs and repetition."""
