"""SARIF 2.1.0 as GitHub code scanning takes it."""

from __future__ import annotations

import json
from typing import Any

from devguard.observe.site import Site
from devguard.report import sarif
from devguard.report.model import Report
from devguard.rules.finding import HistoryEntry
from tests.report import samples


def run_of(report: Report) -> dict[str, Any]:
    log = json.loads(sarif.render(report, folder=samples.FOLDER))
    assert log["version"] == "2.1.0"
    assert len(log["runs"]) == 1
    found: dict[str, Any] = log["runs"][0]
    return found


def location(line: int, text: str) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": "train.py", "uriBaseId": "SRCROOT"},
            "region": {"startLine": line, "endLine": line, "snippet": {"text": text}},
        }
    }


def test_a_result_stands_at_the_line_to_change() -> None:
    (result,) = run_of(samples.report([samples.loss_weight()]))["results"]
    assert result["ruleId"] == "DG105"
    assert result["level"] == "error"
    assert result["locations"] == [location(17, "criterion = nn.CrossEntropyLoss(weight=class_weights)")]
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 41
    assert result["occurrenceCount"] == 5
    assert "Fix: criterion = criterion.to(device)" in result["message"]["text"]


def test_the_history_is_a_code_flow_that_ends_where_it_diverged() -> None:
    (result,) = run_of(samples.report([samples.loss_weight()]))["results"]
    (thread_flow,) = result["codeFlows"][0]["threadFlows"]
    lines = [step["location"]["physicalLocation"]["region"]["startLine"] for step in thread_flow["locations"]]
    assert lines == [15, 20, 41]


def test_rules_are_listed_once_and_results_point_at_them() -> None:
    run = run_of(samples.report([samples.loss_weight(), samples.scalar_read(), samples.loss_weight(fingerprint="x")]))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["DG105", "DG201"]
    assert [result["ruleIndex"] for result in run["results"]] == [0, 1, 0]


def test_fingerprints_hold_no_line_number() -> None:
    moved = samples.loss_weight(cause=samples.site(99, "criterion = nn.CrossEntropyLoss(weight=class_weights)"))
    before, after = (run_of(samples.report([one]))["results"][0] for one in (samples.loss_weight(), moved))
    assert before["partialFingerprints"] == after["partialFingerprints"]


def test_files_outside_the_folder_have_a_file_address() -> None:
    (result,) = run_of(samples.report([samples.scalar_read(cause=None, called_from=None)]))["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "file:///site-packages/metrics/mean.py"}


def test_odd_file_names_are_percent_encoded() -> None:
    odd = samples.site(1, "x", file="a b/ü#%?\udcff.py")
    (result,) = run_of(samples.report([samples.loss_weight(cause=odd)]))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].startswith("a%20b/%C3%BC%23%25%3F%")


def test_a_site_without_a_file_is_no_path() -> None:
    (result,) = run_of(samples.report([samples.loss_weight(cause=Site("<string>", 0, 0, 0, 0, "", ""))]))["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "%3Cstring%3E"}, "region": {"startLine": 1, "endLine": 1}}


def test_a_finding_without_a_place_has_no_made_up_location() -> None:
    (result,) = run_of(samples.report([samples.loss_weight(cause=None, where=None, history=[])]))["results"]
    assert "locations" not in result
    assert "codeFlows" not in result


def test_github_limits_are_kept() -> None:
    history = [HistoryEntry("moved", "aten._to_copy", "cpu", samples.site(1, "x"), None)] * 20_000
    many = [samples.loss_weight(fingerprint=str(number), history=[]) for number in range(30_000)]
    many[0].history = history
    run = run_of(samples.report(many))
    assert len(run["results"]) == 5_000
    flow = run["results"][0]["codeFlows"][0]["threadFlows"][0]["locations"]
    assert len(flow) <= 10_000
    assert all(len(rule["properties"]["tags"]) <= 20 for rule in run["tool"]["driver"]["rules"])


def test_a_rule_of_a_newer_devguard_is_kept() -> None:
    run = run_of(samples.report([samples.loss_weight(rule="DG399", name="later-rule")]))
    assert run["tool"]["driver"]["rules"][0]["id"] == "DG399"


def test_a_program_that_raised_was_no_success() -> None:
    run = run_of(samples.full_report())
    assert run["invocations"][0]["executionSuccessful"] is False
    assert run["invocations"][0]["startTimeUtc"] == "2026-01-02T03:04:05.000Z"
    assert "compiled region" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
