"""Names and sentences of strangers, written so that a terminal or a browser only shows them.

Plans, models, peers, certificates and file names may say anything: sequences that move a cursor or
retitle a window, line breaks that make up a row, overrides that turn text around, marks that have
no width or draw over their neighbours. Each such character is written as its number.
"""

from __future__ import annotations

import unicodedata

MOST_SHOWN = 2000  # characters of a name or sentence; what is longer loses its middle
OVER_NEIGHBOURS = frozenset(("Mn", "Me"))  # marks without a width, which combine with letters
BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # printable to Unicode, and empty


def harmless(text: str, most: int | None = MOST_SHOWN) -> str:
    r"""The text as one line of printable characters; done twice it changes nothing more.

    Args:
        most: characters that are shown; all if None.

    >>> print(harmless("relu\x1b[2J\n\u202econv"))
    relu\x1b[2J\n\u202econv
    """
    if most is not None and len(text) > most:
        half = most // 2
        text = f"{text[:half]}...{text[len(text) + 3 + half - most :]}"
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_plain(c) else _number(c) for c in text)


def _is_plain(c: str) -> bool:
    printable = c.isprintable() and c not in BLANK
    return printable and unicodedata.category(c) not in OVER_NEIGHBOURS


def _number(c: str) -> str:
    named = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
    if c in named:
        return named[c]
    code = ord(c)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
