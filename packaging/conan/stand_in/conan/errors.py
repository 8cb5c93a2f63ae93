# SPDX-License-Identifier: Apache-2.0
"""The errors of recipes."""


class ConanInvalidConfiguration(Exception):
    """The package cannot be had with these settings."""
