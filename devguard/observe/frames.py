"""Which frame is the user's: raw source positions, taken per op and cheap.

A raw site is ``(code, lasti)`` of the innermost frame outside PyTorch, devguard and the standard library. Where that frame lies in
an installed library, the innermost frame of the user's own project follows: ``(code, lasti, project_code, project_lasti)``.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from types import CodeType, FrameType

RawSite = tuple[CodeType, int] | tuple[CodeType, int, CodeType, int]

SKIPPED, LIBRARY, PROJECT = 0, 1, 2

# Libraries that are as little the cause of a device bug as the standard library is.
_TRANSPARENT = ("torch", "devguard", "wrapt", "numpy", "_pytest", "pluggy", "IPython", "ipykernel", "functorch")


def _library_roots() -> tuple[str, ...]:
    roots = {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
    return tuple(os.path.join(root, "") for root in sorted(r for r in roots if r))


def _package_root(name: str) -> str | None:
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    return os.path.join(os.path.dirname(path), "") if path else None


_LIBRARY_ROOTS = _library_roots()
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_OWN_ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_Starts = dict[int, int]  # where an instruction was met -> where it starts
_KNOWN: dict[CodeType, tuple[int, _Starts]] = {}


def kind_of_file(filename: str) -> int:
    """SKIPPED, LIBRARY or PROJECT, by the path that Python gave to the code."""
    if filename.startswith("<"):
        return PROJECT if filename.startswith(("<stdin", "<ipython", "<string", "<cell", "<doctest")) else SKIPPED
    if filename.startswith(_OWN_ROOT):
        return SKIPPED
    for root in _LIBRARY_ROOTS:
        if filename.startswith(root):
            package = filename[len(root) :].split(os.sep, 1)[0].removesuffix(".py")
            return SKIPPED if package in _TRANSPARENT else LIBRARY
    if filename.startswith(_STDLIB):
        return SKIPPED
    torch_root = _package_root("torch")
    if torch_root is not None and filename.startswith(torch_root):
        return SKIPPED
    parts = filename.split(os.sep)
    return LIBRARY if "site-packages" in parts or "dist-packages" in parts else PROJECT


def kind_of(code: CodeType) -> int:
    """The kind of one code object, remembered."""
    return _know(code)[0]


def _know(code: CodeType) -> tuple[int, _Starts]:
    known = _KNOWN.get(code)
    if known is None:
        known = _KNOWN[code] = (kind_of_file(code.co_filename), {})
    return known


def _start(code: CodeType, lasti: int, starts: _Starts) -> int:
    """Where the instruction starts that `lasti` points into.

    From Python 3.11 on an instruction is followed by cache entries (zeros in co_code), and while an instruction that has
    become specialized runs a Python function (``x[i]``, a property), f_lasti points to the last of them.
    """
    raw, place = code.co_code, lasti
    while place > 0 and not raw[place]:
        place -= 2
    starts[lasti] = place
    return place


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame outside PyTorch, devguard and the standard library, from `frame` outwards."""
    while frame is not None and not kind_of(frame.f_code):
        frame = frame.f_back
    return frame


def project_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's own project, from `frame` outwards."""
    while frame is not None and kind_of(frame.f_code) != PROJECT:
        frame = frame.f_back
    return frame


def _place(frame: FrameType, starts: _Starts) -> int:
    lasti = frame.f_lasti
    place = starts.get(lasti)
    return _start(frame.f_code, lasti, starts) if place is None else place


def own_site(frame: FrameType) -> tuple[CodeType, int]:
    """The raw site of this very frame, comparable with those of :func:`raw_site`."""
    return frame.f_code, _place(frame, _know(frame.f_code)[1])


def raw_site(frame: FrameType | None) -> RawSite | None:
    """The raw site of the first user frame from `frame` outwards; None where no user frame is on this stack."""
    table = _KNOWN
    while frame is not None:
        code = frame.f_code
        known = table.get(code)
        kind, starts = known if known is not None else _know(code)
        if kind == PROJECT:
            return (code, _place(frame, starts))
        if kind == LIBRARY:
            owner = project_frame(frame.f_back)
            if owner is None:
                return (code, _place(frame, starts))
            return (code, _place(frame, starts), owner.f_code, _place(owner, _know(owner.f_code)[1]))
        frame = frame.f_back
    return None


class Located:
    """Something that happens under a frame; its raw site is worked out when it is first asked for."""

    __slots__ = ("_site", "frame")

    def __init__(self, frame: FrameType | None) -> None:
        self.frame = frame
        self._site: RawSite | bool | None = False

    @property
    def site(self) -> RawSite | None:
        """The raw site of the user's frame."""
        if self._site is False:
            self._site = raw_site(self.frame)
        return self._site  # type: ignore[return-value]
