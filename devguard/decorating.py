"""A function of any kind with a context manager around each of its runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def around(function: F, context: Callable[[], AbstractContextManager[object]]) -> F:
    """`function` inside `context()`, from the begin of each run to its end, also where it is a generator or a coroutine."""
    if inspect.isasyncgenfunction(function):
        return _async_generator(function, context)  # type: ignore[return-value]
    if inspect.iscoroutinefunction(function):
        return _coroutine(function, context)  # type: ignore[return-value]
    if inspect.isgeneratorfunction(function):
        return _generator(function, context)  # type: ignore[return-value]

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return plain  # type: ignore[return-value]


def _generator(function: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with context():
            return (yield from function(*args, **kwargs))

    return generator


def _coroutine(function: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        with context():
            return await function(*args, **kwargs)

    return coroutine


def _async_generator(function: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        source = function(*args, **kwargs)
        with context():
            try:
                value = await anext(source)
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        value = await source.athrow(error)
                    else:
                        value = await source.asend(sent)
            except StopAsyncIteration:
                return
            finally:
                await source.aclose()

    return generator
