# SPDX-License-Identifier: Apache-2.0
"""`python -m thresher` is the command `thresher`."""

from __future__ import annotations

import sys

from thresher.cli.main import main

sys.exit(main())
