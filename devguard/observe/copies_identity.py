"""Is it the same data again? Told by the storage, which a weak reference to it (not to a tensor) keeps from being mistaken
for a later one at the same address, and by the version of its content."""

from __future__ import annotations

from typing import Any

from torch.multiprocessing.reductions import StorageWeakRef

from devguard.observe.copies_ops import layout_of

# Different data per place: a loop over a few tables is seen, an epoch of many batches is not the same data.
_REMEMBERED = 4

Mark = tuple[int, StorageWeakRef, Any]


def mark_of(tensor: Any) -> Mark | None:
    """(storage, its weak reference, view and version) of a tensor; None for one without a storage."""
    try:
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
    except (NotImplementedError, RuntimeError, AttributeError, TypeError):
        return None
    return reference.cdata, reference, layout_of(tensor)


class Recent:
    """The last few pieces of data that each place copied."""

    def __init__(self) -> None:
        self._places: dict[Any, list[Mark]] = {}

    def seen(self, place: Any, tensor: Any) -> bool:
        """Has `place` copied this very data before? Remembers it either way."""
        mark = mark_of(tensor)
        if mark is None:
            return False
        marks = self._places.setdefault(place, [])
        found = any(old[2] == mark[2] and old[0] == mark[0] and not old[1].expired() for old in marks)
        if not found:
            marks[:] = [old for old in marks if not old[1].expired()][-(_REMEMBERED - 1) :]
            marks.append(mark)
        return found
