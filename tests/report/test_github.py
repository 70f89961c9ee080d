"""GitHub annotations: one command per finding, and no way out of it."""

from __future__ import annotations

from devguard.report import github
from tests.report import samples


def lines(*findings: object) -> list[str]:
    return github.render(samples.report(list(findings)), folder=samples.FOLDER).splitlines()  # type: ignore[arg-type]


def test_a_finding_is_an_annotation_of_the_line_to_change() -> None:
    assert lines(samples.loss_weight())[0] == (
        "::error title=DG105 loss-weight,file=train.py,line=17,endLine=17::criterion.weight is on cpu, its input is on "
        "cuda:0%0Afix: criterion = criterion.to(device)%0A5 times, 1 per step, steps 0 to 4"
    )


def test_notes_are_notices() -> None:
    assert lines(samples.created_then_moved())[0].startswith("::notice title=DG308 move-after-create,file=model.py,")


def test_the_last_line_is_the_summary() -> None:
    assert lines()[-1] == "devguard: nothing found in 12 steps and 10,293 ops on cuda:0, cuda:1 (simulated)"


def test_text_of_the_program_can_not_begin_a_command_or_a_property() -> None:
    bad = "x\n::error::owned\r\x1b,line=1:%0A"
    place = samples.site(1, "x", file=bad)
    shown = lines(samples.loss_weight(name=bad, message=bad, cause=place))
    assert len(shown) == 2
    head, _, _ = shown[0].removeprefix("::error ").partition("::")
    assert [part.partition("=")[0] for part in head.split(",")] == ["title", "file", "line", "endLine"]
    assert "%250A" in shown[0]
    assert "\x1b" not in shown[0]
