# SPDX-License-Identifier: Apache-2.0
"""Import names and configurations of other curators, mapped to ours."""
