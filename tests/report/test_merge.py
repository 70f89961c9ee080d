"""Reports of several ranks become one, and two reports are compared."""

from __future__ import annotations

import pytest

from devguard.report.diff import compare, render
from devguard.report.json import ReportError
from devguard.report.merge import merge
from devguard.report.model import NotSeen, Report, Transfer
from devguard.rules.finding import Finding
from tests.report import samples


def rank(number: int | None, *findings: Finding, **changes: object) -> Report:
    return samples.report(list(findings), rank=number, **changes)


def test_one_report_stays_as_it_is() -> None:
    assert merge([samples.full_report()]) == samples.full_report()


def test_equal_findings_of_ranks_are_one_that_names_them() -> None:
    merged = merge([rank(0, samples.loss_weight()), rank(2, samples.loss_weight(count=3, per_step=2.0, last_step=9))])
    (finding,) = merged.findings
    assert (finding.ranks, finding.count, finding.per_step, finding.last_step) == ([0, 2], 8, 2.0, 9)
    assert merged.rank is None


def test_the_worse_level_counts_and_leads() -> None:
    merged = merge([rank(0, samples.loss_weight(level="note")), rank(1, samples.scalar_read(), samples.loss_weight())])
    assert [finding.level for finding in merged.findings] == ["error", "warning"]


def test_findings_of_one_rank_keep_its_number() -> None:
    merged = merge([rank(0, samples.scalar_read()), rank(1, samples.loss_weight())])
    assert {finding.rule: finding.ranks for finding in merged.findings} == {"DG105": [1], "DG201": [0]}


def test_inputs_are_left_alone() -> None:
    first = samples.loss_weight()
    merge([rank(0, first), rank(1, samples.loss_weight())])
    assert first == samples.loss_weight()


def test_transfers_and_unseen_things_add_up() -> None:
    copy = Transfer(samples.site(3, "x"), "cpu", "cuda:0", 2, 10, False, True, False)
    unseen = NotSeen("compiled region", 1, None)
    merged = merge([rank(0, transfers=[copy], not_seen=[unseen]), rank(1, transfers=[copy], not_seen=[unseen])])
    assert (merged.transfers[0].count, merged.transfers[0].bytes, merged.not_seen[0].count) == (4, 20, 2)


def test_reports_without_ranks_are_numbered_in_order() -> None:
    assert merge([rank(None, samples.loss_weight())] * 2).findings[0].ranks == [0, 1]


@pytest.mark.parametrize("ranks", [[0, 0], [0, None], []])
def test_reports_that_are_not_of_one_run_are_refused(ranks: list[int | None]) -> None:
    with pytest.raises(ReportError):
        merge([rank(number) for number in ranks])


def test_new_gone_and_unchanged_findings_are_told_apart() -> None:
    difference = compare(
        samples.report([samples.loss_weight(), samples.created_then_moved()]),
        samples.report([samples.scalar_read(), samples.created_then_moved()]),
    )
    assert [finding.rule for finding in difference.new] == ["DG201"]
    assert [finding.rule for finding in difference.gone] == ["DG105"]
    assert difference.same == 1


def test_a_higher_rate_is_worse_though_the_finding_is_known() -> None:
    old, new = samples.scalar_read(), samples.scalar_read(per_step=300.0)
    difference = compare(samples.report([old]), samples.report([new]))
    assert difference.worse() == [new]
    assert compare(samples.report([new]), samples.report([old])).less[0].new == old


def test_a_longer_run_at_the_same_rate_is_no_change() -> None:
    difference = compare(samples.report([samples.scalar_read()]), samples.report([samples.scalar_read(count=9000)]))
    assert difference.same == 1


def test_without_rates_the_counts_decide() -> None:
    old, new = samples.loss_weight(per_step=0.0, count=1), samples.loss_weight(per_step=0.0, count=2)
    assert compare(samples.report([old]), samples.report([new])).worse() == [new]


def test_the_difference_as_text() -> None:
    difference = compare(
        samples.report([samples.loss_weight(), samples.scalar_read()]),
        samples.report([samples.scalar_read(per_step=2.0), samples.created_then_moved()]),
    )
    assert render(difference, samples.FOLDER).splitlines() == [
        "new:  note[DG308] move-after-create: mask is made on cpu and moved to cuda:0 at once at model.py:30"
        " (once, 3.0 KiB in all)",
        "gone: error[DG105] loss-weight: criterion.weight is on cpu, its input is on cuda:0 at train.py:17"
        " (5 times, 1 per step, steps 0 to 4)",
        "more: warning[DG201] scalar-read: loss.item() waits for cuda:0 in every step at train.py:45"
        " (1 per step before, 2 per step now)",
        "devguard: 1 new, 1 gone, 1 more often, 0 less often, 0 unchanged",
    ]
