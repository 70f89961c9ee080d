"""DEVGUARD=1: the door for programs whose code cannot be touched. PyTorch calls `start` at the end of `import torch`."""

from __future__ import annotations

import os


def start() -> None:
    """Called through the `torch.backends` entry point. Does nothing, and imports nothing, unless DEVGUARD is set."""
    if not os.environ.get("DEVGUARD"):
        return
