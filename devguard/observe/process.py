"""The process as a whole: its rank's own accelerator, the models it runs and where, autocast."""

from __future__ import annotations

from devguard.observe.dispatch import Handlers
from devguard.observe.module_stack import ModuleStack
from devguard.observe.process_autocast import Autocast
from devguard.observe.process_facts import ProcessFacts
from devguard.observe.process_models import Models
from devguard.observe.process_ranks import RankDevices
from devguard.observe.recorder import Recorder


class Process:
    """Observer: puts its three parts together; the first two listen to outermost calls."""

    name = "process"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        facts = recorder.facts.table(ProcessFacts)
        self.models = Models(recorder, facts)
        self.ranks = RankDevices(recorder, handlers, facts)
        self.autocast = Autocast(recorder, handlers, facts)
        stack = recorder.observers.get(ModuleStack.name)
        if isinstance(stack, ModuleStack):
            stack.called.append(recorder.shielded("models by device", self.models.called))
            stack.called.append(recorder.shielded("rank devices", self.ranks.called))

    def start(self) -> None:
        """Install hooks and patches."""
        self.ranks.start()
        self.autocast.start()

    def stop(self) -> None:
        """Give them back."""
        self.ranks.stop()
        self.autocast.stop()

    def collect(self) -> None:
        """Before a report."""
        self.models.collect()
        self.ranks.collect()
