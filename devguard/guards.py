"""`devguard.allow` and `devguard.guard`: scopes that users open in code, as `with` blocks and as decorators."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

from devguard.observe import scopes
from devguard.observe.scopes import GUARD_LEVELS, GuardLevel, GuardScope, Scope
from devguard.observe.symbolize import statement_at
from devguard.options import OptionsError, nearest, rule_prefix, show

F = TypeVar("F", bound=Callable[..., Any])


class _Scoped:
    """A scope as context manager and decorator: reentrant, for several threads, and for `async def` functions too."""

    def __init__(self) -> None:
        self._entered: list[Callable[[], None]] = []

    def _open(self, file: str, first: int, last: int) -> Callable[[], None]:
        """Open the scope of some lines of a file; the result closes it again."""
        raise NotImplementedError

    def __enter__(self) -> None:
        self._entered.append(self._open(*_block(sys._getframe(1))))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop()()

    def __call__(self, function: F) -> F:
        lines = _lines_of(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def scoped_coroutine(*args: Any, **kwargs: Any) -> Any:
                close = self._open(*lines)
                try:
                    return await function(*args, **kwargs)
                finally:
                    close()

            return scoped_coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            close = self._open(*lines)
            try:
                return function(*args, **kwargs)
            finally:
                close()

        return scoped  # type: ignore[return-value]


def _opened(scope: Scope) -> Callable[[], None]:
    scopes.push(scope)
    return lambda: scopes.pop(scope)


class allow(_Scoped):  # a function to its users, as contextlib's classes are
    """`with devguard.allow("DG201", reason="the metric needs it"):` what these rules find inside is wanted.

    Takes rule codes, beginnings of codes or names, and a reason, which is required. With `first_only` only the first event
    is allowed. An allowance that no run needs is told in the report. Raises OptionsError for an unknown rule.
    """

    def __init__(self, *codes: str, reason: str, first_only: bool = False) -> None:
        super().__init__()
        if not codes:
            raise OptionsError("allow(): name at least one rule, such as allow('DG201', reason='...')")
        self._codes = tuple(_checked(code) for code in codes)
        if not isinstance(reason, str) or not reason.strip():
            raise OptionsError("allow(): give the reason as text, such as reason='the metric needs it'")
        self._reason = reason.strip()
        self._first_only = first_only

    def _open(self, file: str, first: int, last: int) -> Callable[[], None]:
        return _opened(scopes.allow_at(self._codes, self._reason, self._first_only, file, first, last))


class guard(_Scoped):
    """`with devguard.guard(sync="error"):` makes a wait or a copy inside raise DeviceGuardError at the guilty line.

    `sync` speaks of waits for the accelerator, `h2d`, `d2h` and `d2d` of copies from host to device, device to host and
    device to device: "error" raises, "log" leaves it to the report, "allow" keeps it out of the report, None leaves it to
    the scope around. With `implicit_only` copies that the program asks for (`.to()`, `.cpu()`) are exempt. Outside a watch
    the guard starts one of its own. Raises OptionsError for another level, or where none is given.
    """

    def __init__(
        self,
        *,
        sync: GuardLevel | None = None,
        h2d: GuardLevel | None = None,
        d2h: GuardLevel | None = None,
        d2d: GuardLevel | None = None,
        implicit_only: bool = True,
    ) -> None:
        super().__init__()
        levels: dict[str, GuardLevel] = {}
        for name, level in (("sync", sync), ("h2d", h2d), ("d2h", d2h), ("d2d", d2d)):
            if level is not None and level not in GUARD_LEVELS:
                hint = nearest(level, GUARD_LEVELS) if isinstance(level, str) else ""
                tail = f", did you mean {hint}?" if hint else ""
                raise OptionsError(f"guard(): {name}={show(level)}: expected one of {', '.join(GUARD_LEVELS)}{tail}")
            if level is not None:
                levels[name] = level
        if not levels:
            raise OptionsError(
                'guard() says nothing: name what to forbid, such as guard(sync="error") or guard(h2d="error", d2h="error")'
            )
        self._scope = GuardScope(levels, implicit_only)

    def _open(self, file: str, first: int, last: int) -> Callable[[], None]:
        from devguard.watch import Watch, running

        own = None if running() else Watch().start()
        close = _opened(self._scope)

        def closed() -> None:
            close()
            if own is not None:
                own.stop()

        return closed


def _checked(code: object) -> str:
    try:
        return rule_prefix(code)
    except ValueError as problem:
        hint = f", did you mean {problem}?" if str(problem) else ""
        raise OptionsError(f"allow(): {show(code)} is no rule{hint}") from None


def _block(frame: FrameType) -> tuple[str, int, int]:
    """File, first and last line of the `with` block that `frame` is entering."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    statement = statement_at(file, line)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return file, statement.lineno, statement.end_lineno or statement.lineno
    return file, line, line


def _lines_of(function: Callable[..., Any]) -> tuple[str, int, int]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return "", 0, 0
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_filename, code.co_firstlineno, max(lines, default=code.co_firstlineno)
