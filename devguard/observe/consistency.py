"""Filled by its owner."""

from __future__ import annotations

from devguard.observe.dispatch import Handlers
from devguard.observe.recorder import Recorder


class Consistency:
    """Observer."""

    name = "consistency"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.handlers = handlers

    def start(self) -> None:
        """Nothing yet."""

    def stop(self) -> None:
        """Nothing yet."""
