# SPDX-License-Identifier: Apache-2.0
"""Backends on engines that bring their own scheduler (Ray Data, Xenna, Ray actor pools), behind the `Cluster`
interface."""
