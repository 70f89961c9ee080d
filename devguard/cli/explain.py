"""`devguard explain` and `devguard rules`: what each rule finds, why it is bad and how to mend it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from devguard import doctor
from devguard.cli._common import EXIT_OK, Command, UsageError
from devguard.options import nearest
from devguard.report import write
from devguard.rules.catalog import CATALOG, RuleInfo
from devguard.rules.page import PageError, load_page


def _rules() -> dict[str, RuleInfo]:
    return {**CATALOG, **doctor.RULES}


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", help="a rule's code or name, such as DG105 or loss-weight")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def _run(arguments: argparse.Namespace) -> int:
    code = _code(arguments.code)
    if code in doctor.RULES:
        return _explain_check(code, arguments.format)
    try:
        page = load_page(code)
    except PageError as problem:
        raise UsageError(str(problem)) from None
    if arguments.format == "json":
        write.to_stdout(json.dumps(dataclasses.asdict(page), indent=2) + "\n")
    else:
        _print_markdown(page.markdown)
    return EXIT_OK


def _explain_check(code: str, form: str) -> int:
    rule = doctor.RULES[code]
    if form == "json":
        write.to_stdout(json.dumps(dataclasses.asdict(rule), indent=2) + "\n")
    else:
        text = f"# {code} {rule.name}\n\n{rule.summary}\n\n## How to find it\n\n`devguard doctor` looks for it.\n"
        _print_markdown(text)
    return EXIT_OK


def _code(word: str) -> str:
    rules = _rules()
    by_name = {rule.name: code for code, rule in rules.items()}
    code = by_name.get(word.strip().lower(), word.strip().upper())
    if code not in rules:
        hint = nearest(code, rules) or nearest(word.strip().lower(), by_name)
        raise UsageError(
            f"no rule is called {word!r}" + (f", did you mean {hint}?" if hint else " (`devguard rules` lists them)")
        )
    return code


def _print_markdown(text: str) -> None:
    if not write.colored("auto", sys.stdout):
        write.to_stdout(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=sys.stdout).print(Markdown(text))


def _configure_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def _run_rules(arguments: argparse.Namespace) -> int:
    rules = list(_rules().values())
    if arguments.format == "json":
        write.to_stdout(json.dumps([dataclasses.asdict(rule) for rule in rules], indent=2) + "\n")
        return EXIT_OK
    lines = [f"{rule.code}  {rule.level:8} {rule.name:21} {rule.summary}\n" for rule in rules]
    write.to_stdout("".join(lines))
    return EXIT_OK


COMMAND = Command("explain", "tell what a rule finds, why it is bad and how to mend it", _configure, _run)
RULES_COMMAND = Command("rules", "list every rule", _configure_rules, _run_rules)
