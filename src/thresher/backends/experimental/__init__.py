# SPDX-License-Identifier: Apache-2.0
"""Import paths of executors that scripts written for NeMo Curator use."""
