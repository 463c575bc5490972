# SPDX-License-Identifier: Apache-2.0
"""Workers: pools, autoscaling, measured rates and recycling."""
