"""The text of an expression, as a part of code that a message proposes. Imports no torch."""

from __future__ import annotations

import ast


def node_of(text: str) -> ast.expr | None:
    """The expression that a text is; None where it is words and no code."""
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def before_a_dot(text: str) -> str:
    """The expression as it may stand before a dot: ``x``, ``(a + b)``."""
    whole = isinstance(node_of(text), (ast.Name, ast.Attribute, ast.Subscript, ast.Call, type(None)))
    return text if whole else f"({text})"
