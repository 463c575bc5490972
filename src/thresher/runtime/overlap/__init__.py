# SPDX-License-Identifier: Apache-2.0
"""Workers with an accelerator: a helper thread does everything else while the stage computes."""
