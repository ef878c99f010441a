"""Examples below the help of a command; a test parses every one of them, so that they cannot rot."""

HEADING = "Examples:"
WIDTH = 76
"""Longest example that a terminal of 80 columns does not wrap."""


def examples(*lines: str) -> str:
    """The epilog that shows these command lines, each without the name of the program.

    >>> examples("demo")
    'Examples:\\n  portfolio-sdpo demo'
    """
    return "\n".join([HEADING, *(f"  portfolio-sdpo {line}" for line in lines)])
