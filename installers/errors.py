"""What set-up raises when the person has to do something."""


class SetUpError(Exception):
    """A step failed. The message says what happened and what to do; it is shown as it is, without a traceback."""
