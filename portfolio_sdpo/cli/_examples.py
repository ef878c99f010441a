"""Examples below the help of a command; a test parses each of them, so that they stay valid."""

HEADING = "Examples:"
WIDTH = 76
"""The longest example that fits into a terminal of 80 columns."""


def examples(*lines: str) -> str:
    """Return the epilog with these command lines, which are given without the name of the program.

    >>> examples("demo")
    'Examples:\\n  portfolio-sdpo demo'
    """
    return "\n".join([HEADING, *(f"  portfolio-sdpo {line}" for line in lines)])
