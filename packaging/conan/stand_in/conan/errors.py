"""The errors of recipes."""


class ConanInvalidConfiguration(Exception):
    """The package cannot be had with these settings."""
