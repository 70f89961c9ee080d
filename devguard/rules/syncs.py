"""Filled by its owner."""

from __future__ import annotations

from devguard.rules.engine import Check

CHECKS: tuple[Check, ...] = ()
