# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over the bytes of texts. They take and return arrays and contain no policy."""

from thresher.kernels.build.cache import use_own_folder

use_own_folder()
