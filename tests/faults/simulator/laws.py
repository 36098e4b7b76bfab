"""The error for a history that breaks a promise."""


class LawBroken(AssertionError):
    """What streampgs promises did not hold."""
