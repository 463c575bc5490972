# SPDX-License-Identifier: Apache-2.0
"""Run scripts for NeMo Curator: after `import thresher.compat.nemo_curator`, `import nemo_curator.…` finds Thresher.

The same modules are below this package: `from thresher.compat.nemo_curator.pipeline import Pipeline`.
"""

from thresher.compat.nemo.finder import install

install()
