"""The report as SARIF 2.1.0, within the limits of GitHub code scanning. Imports no torch.

Each result stands at the line to change; where it diverged is a related location, the tensor's history a code flow.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from devguard.observe.site import Site
from devguard.report import _layout as layout
from devguard.report.model import Report
from devguard.rules.catalog import CATALOG
from devguard.rules.finding import Finding

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "SRCROOT"
MAX_RESULTS = 5_000
"""GitHub keeps no more of one run; findings are ranked, so the worst are in."""
MAX_STATIONS = 1_000
"""History entries of one result; GitHub keeps 10,000 locations of all flows of one."""


def render(report: Report, *, folder: str | None = None) -> str:
    """The report as SARIF text; paths below `folder` (default: the working directory) are relative to it."""
    base = layout.working_folder() if folder is None else folder
    findings = report.findings[:MAX_RESULTS]
    codes = list(dict.fromkeys(finding.rule for finding in findings))
    run = {
        "tool": {
            "driver": {
                "name": "devguard",
                "version": report.version,
                "rules": [_rule(code, findings) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": _folder_uri(base)}} if base else {},
        "invocations": [_invocation(report)],
        "results": [_result(finding, codes.index(finding.rule), base) for finding in findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(code: str, findings: list[Finding]) -> dict[str, Any]:
    known = CATALOG.get(code)
    if known is None:  # from a newer devguard
        first = next(finding for finding in findings if finding.rule == code)
        return {"id": _text(code), "name": _text(first.name), "shortDescription": {"text": _text(first.name)}}
    return {
        "id": known.code,
        "name": known.name,
        "shortDescription": {"text": known.summary},
        "fullDescription": {"text": known.summary},
        "help": {"text": f"devguard explain {known.code}"},
        "defaultConfiguration": {"level": known.level},
        "properties": {"tags": ["pytorch", "device"]},
    }


def _invocation(report: Report) -> dict[str, Any]:
    notes = [entry.what for entry in report.not_seen]
    found: dict[str, Any] = {"executionSuccessful": report.exception is None}
    if report.started:
        found["startTimeUtc"] = report.started.replace("+00:00", "Z")
    if notes:
        found["toolExecutionNotifications"] = [
            {"level": "note", "message": {"text": _text(f"not seen: {note}")}} for note in notes
        ]
    return found


def _result(finding: Finding, index: int, base: str) -> dict[str, Any]:
    places = layout.places(finding)
    result: dict[str, Any] = {
        "ruleId": _text(finding.rule),
        "ruleIndex": index,
        "level": finding.level,
        "message": {"text": _message(finding)},
        "partialFingerprints": {"devguard/v1": _text(finding.fingerprint)},
        "occurrenceCount": max(finding.count, 1),
        "properties": {"certainty": finding.certainty, "perStep": finding.per_step, "bytes": finding.bytes},
    }
    if places:
        result["locations"] = [_location(places[0].site, base)]
    if places[1:]:
        result["relatedLocations"] = [
            {"id": number, **_location(place.site, base), "message": {"text": place.label}}
            for number, place in enumerate(places[1:])
        ]
    flow = _flow(finding, base)
    if flow:
        result["codeFlows"] = [{"threadFlows": [{"locations": flow}]}]
    return result


def _message(finding: Finding) -> str:
    parts = [f"{finding.message} ({layout.counts(finding)})"]
    if finding.fix is not None and finding.fix.text:
        parts.append(f"Fix: {finding.fix.text}")
    return "\n".join(_text(part) for part in parts)


def _flow(finding: Finding, base: str) -> list[dict[str, Any]]:
    """The tensor's life as steps, ending where it diverged."""
    steps = [
        (entry.site, layout.history_words(entry, base))
        for entry in finding.history[-MAX_STATIONS:]
        if entry.site is not None
    ]
    if not steps:
        return []
    if finding.where is not None:
        steps.append((finding.where, layout.clean(finding.message)))
    return [{"location": {**_location(site, base), "message": {"text": words}}} for site, words in steps]


def _location(site: Site, base: str) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(site.line, 1), "endLine": max(site.end_line, site.line, 1)}
    if site.text:
        region["snippet"] = {"text": _text(site.text)}
    return {"physicalLocation": {"artifactLocation": _artifact(site.file, base), "region": region}}


def _artifact(file: str, base: str) -> dict[str, Any]:
    from urllib.parse import quote

    short = layout.relative(file, base)
    if not os.path.isabs(short) and short != file:
        return {"uri": _quoted(short), "uriBaseId": _ROOT}
    if os.path.isabs(file):
        return {"uri": f"file://{_quoted(file)}"}
    return {"uri": quote(file, safe="", errors="surrogatepass")}


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace(os.sep, "/"), errors="surrogatepass")


def _folder_uri(folder: str) -> str:
    uri = Path(folder).absolute().as_uri()
    return uri if uri.endswith("/") else f"{uri}/"


def _text(text: str) -> str:
    """Text of the program with control characters shown; line ends stay."""
    return "\n".join(layout.clean_source(line) for line in text.split("\n"))
