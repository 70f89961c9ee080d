"""The HTML page: complete, self-contained, and deaf to what the program is called."""

from __future__ import annotations

from html.parser import HTMLParser

from devguard.observe.site import Site
from devguard.report import html
from devguard.report.model import NotSeen, RaisedException, Report
from tests.report import samples

MARKUP = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}&amp;"
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails where tags do not match."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def render(report: Report) -> Page:
    return Page(html.render(report, folder=samples.FOLDER))


def test_the_page_shows_everything_of_a_report() -> None:
    page = render(samples.full_report())
    for words in (
        "1 error, 1 warning, 1 note",
        "error[DG105]",
        "criterion.weight is on cpu, its input is on cuda:0",
        "train.py:17",
        "criterion = nn.CrossEntropyLoss(weight=class_weights)",
        "criterion = criterion.to(device)",
        "left behind on cpu when model moved at train.py:20",
        "5 times, 1 per step, steps 0 to 4",
        "cpu → cuda:0",
        "48.0 KiB",
        "compiled region (2 times) at train.py:9",
        "RuntimeError: Expected all tensors",
    ):
        assert words in page.text, words


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    page = render(samples.full_report())
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "onclick"} & page.names


def test_the_page_has_a_light_and_a_dark_look() -> None:
    assert "prefers-color-scheme: dark" in html.render(samples.report([]))


def test_a_clean_report_says_so() -> None:
    assert "Nothing was found." in render(samples.report([])).text


def test_a_finding_without_a_place_keeps_its_fix() -> None:
    page = render(samples.report([samples.loss_weight(cause=None, where=None)]))
    assert "criterion = criterion.to(device)" in page.text


def test_markup_in_the_programs_names_stays_text() -> None:
    place = Site(f"{samples.FOLDER}/{MARKUP}.py", 3, 3, 0, 5, MARKUP, MARKUP)
    finding = samples.loss_weight(
        message=MARKUP, rule=MARKUP, name=MARKUP, module=MARKUP, module_type=MARKUP, where=place, cause=place
    )
    assert finding.fix is not None
    assert finding.tensor is not None
    finding.fix.text = finding.tensor.name = MARKUP
    page = render(
        samples.report(
            [finding],
            command=[MARKUP],
            torch=MARKUP,
            version=MARKUP,
            started=MARKUP,
            devices=[MARKUP],
            exception=RaisedException(MARKUP, MARKUP),
            not_seen=[NotSeen(MARKUP, 1, place)],
        )
    )
    assert not {"script", "img"} & set(page.tags)
    assert "onerror" not in page.names
    assert "{{ 7 * 7 }}" in page.text
    assert "49" not in page.text
