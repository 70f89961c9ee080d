"""A dispatch mode belongs to one thread: carry the watch into the threads that the program starts while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from devguard.observe.dispatch import DispatchMode, Handlers
from devguard.observe.patching import Patches
from devguard.observe.recorder import Recorder

# Threads of PyTorch's own that only pass finished batches on.
_LEFT_ALONE = ("_pin_memory_loop",)


class Threads:
    """Observer: a thread started under the watch runs under it (DataParallel's replicas, ThreadPoolExecutor, the user's own)."""

    name = "threads"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.handlers = handlers
        self.patches = Patches()

    def start(self) -> None:
        """Wrap threading.Thread.start."""
        self.patches.wrap(threading.Thread, "start", self._start)

    def stop(self) -> None:
        """Give it back; threads that still run see an inactive recorder."""
        self.patches.restore()

    def _start(self, wrapped: Callable[..., Any], thread: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = getattr(getattr(thread, "_target", None), "__name__", "")
        if self.recorder.active and target not in _LEFT_ALONE and self._is_watched():
            run = thread.run  # another watch's, where two are nested
            mode = DispatchMode(self.recorder, self.handlers)

            def watched() -> None:
                vars(thread).pop("run", None)
                with mode:
                    run()

            thread.run = watched
        return wrapped(*args, **kwargs)

    def _is_watched(self) -> bool:
        """Does the thread that starts another run under this watch? Others have nothing to pass on."""
        modes = _get_current_dispatch_mode_stack()
        return any(isinstance(mode, DispatchMode) and mode.recorder is self.recorder for mode in modes)
