"""The cell magic `%%devguard` for Jupyter and IPython: `%load_ext devguard.notebook` once, then put it on top of a cell."""

from __future__ import annotations

import sys
from typing import Any

from devguard.options import Options, OptionsError, parse_text
from devguard.report.text import render


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext devguard.notebook` calls with the running shell."""
    shell.register_magic_function(Magic(shell).cell, "cell", "devguard")


class Magic:
    """The magic of one shell. A simulation that a cell asks for stays: later cells use its tensors."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.simulation: Any = None

    def cell(self, line: str, cell: str) -> None:
        """Run a cell under a watch and print the report. The rest of the line holds options: `simulate=cuda:2 ignore=DG2`."""
        try:
            options = Options.load(None, None, **parse_text(",".join(line.split())))
            self._simulate(options)
        except (OptionsError, RuntimeError) as problem:
            sys.stderr.write(f"%%devguard: {problem}\n")
            return
        from devguard.watch import Watch

        watch = Watch(options=options).start()
        try:
            done = self.shell.run_cell(cell)  # shows the cell's own errors
            error = getattr(done, "error_in_exec", None)
            if error is not None:
                watch.note_exception(error)
        finally:
            report = watch.stop()
        sys.stdout.write(render(report))

    def _simulate(self, options: Options) -> None:
        if options.simulate is None:
            return
        if self.simulation is None:
            from devguard.simulate import simulate

            self.simulation = simulate(options.simulate, memory=options.memory).start()
        elif self.simulation.spec != options.simulate:
            raise RuntimeError(f"{self.simulation.spec} is being simulated already: restart the kernel to change it")
