# SPDX-License-Identifier: Apache-2.0
"""Build torch models from the files of a folder, one module per layout of checkpoint."""
