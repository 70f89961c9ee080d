"""The architecture, held by tests: which part may import which, how large a file may grow, what importing costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "devguard"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts)

# May be imported by the next ones: knowledge -> observe -> rules -> report -> doors. simulate stands beside observe.
LAYERS = ("knowledge", "observe", "rules", "report", "doors")
PLACES = {
    "devguard._version": "knowledge",
    "devguard.knowledge": "knowledge",
    "devguard.observe": "observe",
    "devguard.rules": "rules",
    "devguard.options": "rules",  # the table of keys knows the rules' codes
    "devguard.report": "report",
    "devguard.policy": "report",
    "devguard.marks": "report",
    "devguard.baseline": "report",
    "devguard.doctor": "report",
    "devguard.simulate": "simulate",
    "devguard.integrations": "doors",
    "devguard.cli": "doors",
    "devguard": "doors",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> str:
    while module not in PLACES:
        module = module.rpartition(".")[0]
    return PLACES[module]


def imports(path: Path) -> Iterator[str]:
    """Every module of devguard's that a file imports, also inside functions; type checking does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (found for alias in node.names if (found := _target(node.module or "", alias.name)))


def _target(module: str, name: str) -> str:
    """`from devguard.report import text` imports devguard.report.text where that is a module."""
    below = ROOT.joinpath(*module.split("."), name)
    return f"{module}.{name}" if below.with_suffix(".py").exists() or (below / "__init__.py").exists() else module


def allowed(importer: str, imported: str) -> bool:
    if importer == imported or importer == "doors":
        return True
    if importer == "simulate":
        return imported == "knowledge"
    return imported != "simulate" and LAYERS.index(imported) < LAYERS.index(importer)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_point_one_way(path: Path) -> None:
    mine = layer(module_name(path))
    for module in imports(path):
        if module.partition(".")[0] == "devguard":
            assert allowed(mine, layer(module)), f"{path.name} ({mine}) imports {module} ({layer(module)})"


def test_a_wrong_arrow_is_seen() -> None:
    assert not allowed("observe", "rules")
    assert not allowed("report", "simulate")
    assert not allowed("simulate", "observe")
    assert allowed("report", "rules")


@pytest.mark.parametrize("path", sorted((PACKAGE / "report").glob("*.py")), ids=lambda path: path.name)
def test_a_renderer_imports_no_other_renderer(path: Path) -> None:
    renderers = {f"devguard.report.{name}" for name in ("text", "html", "sarif", "github")}
    if module_name(path) in renderers:
        assert not renderers & (set(imports(path)) - {module_name(path)})


@pytest.mark.parametrize("path", FILES + TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    limit = 1200 if path.stem.endswith(("_table", "_programs")) else 420  # tables of programs are data
    assert source.count("\n") <= limit, "a file has one reason to change: split it by its reasons"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and path in FILES:
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 66, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or not path.read_text(encoding="utf-8")


def test_no_path_of_a_machine_is_in_the_package() -> None:
    for path in [*FILES, *TESTS]:
        if path != Path(__file__):
            assert not re.search(r"/work/|/root/", path.read_text(encoding="utf-8")), path


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout


@pytest.mark.parametrize(
    "module",
    [
        "devguard",
        "devguard.options",
        "devguard.policy",
        "devguard.guards",
        "devguard.baseline",
        "devguard.cli",
        "devguard.pytest_plugin",
        "devguard.autostart",
        "devguard.rules.engine",
        "devguard.rules.page",
        "devguard.report.json",
        "devguard.report.text",
        "devguard.report.html",
        "devguard.report.sarif",
        "devguard.report.github",
        "devguard.report.merge",
        "devguard.report.diff",
        "devguard.report.write",
    ],
)
def test_importing_needs_no_torch(module: str) -> None:
    heavy = "[m for m in ('torch', 'rich', 'jinja2', 'numpy', 'wrapt') if m in sys.modules]"
    assert python(f"import sys, {module}; print({heavy})") == "[]\n"


def test_public_names_are_all_there_and_hide_no_submodule() -> None:
    code = """
import devguard, devguard.watch, devguard.simulate, types
from devguard.watch import Watch
assert devguard.Watch is Watch
for name in devguard.__all__:
    assert not isinstance(getattr(devguard, name), types.ModuleType), name
    assert name in dir(devguard)
print(sorted(devguard.__all__))
"""
    expected = "DeviceGuardError Finding Report Watch __version__ allow guard simulate step watch".split()
    assert python(code) == f"{expected}\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    import devguard

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = devguard.nothing


def test_the_version_is_in_one_place() -> None:
    for path in FILES:
        found = re.findall(r"__version__ = ", path.read_text(encoding="utf-8"))
        assert not found or path.name == "_version.py"


def test_the_changelog_has_an_unreleased_part() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
