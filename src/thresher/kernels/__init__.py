# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over the bytes of texts: counts in, counts out, no objects and no policy."""

from thresher.kernels.cache import use_own_folder

use_own_folder()
