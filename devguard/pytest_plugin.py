"""The pytest plugin: the fixture `device_watch`, the marker `devguard`, and `--devguard` for a whole suite.

Importing this module imports no torch; only a run that watches or simulates does.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from devguard._pytest_session import Session
    from devguard._pytest_watch import ItemWatch
    from devguard.watch import Watch


@dataclass(frozen=True)
class Setting:
    """One setting of the plugin: a command-line option, an ini key, and the option of devguard that they set."""

    name: str
    help: str
    ini: Any = "string"
    flag: dict[str, Any] = field(default_factory=dict)

    @property
    def option(self) -> str:
        """On the command line."""
        return "--" + self.key.replace("_", "-")

    @property
    def key(self) -> str:
        """In the ini file."""
        return f"devguard_{self.name}" if self.name else "devguard"


SETTINGS = (
    Setting("", "watch every test, and fail those with findings", "bool", {"action": "store_true", "default": None}),
    Setting("simulate", "run the whole session on simulated accelerators, such as cuda:2", flag={"metavar": "cuda:N"}),
    Setting(
        "report",
        "write what all tests found to FORMAT:PATH; may be repeated",
        "linelist",
        {"action": "append", "metavar": "FORMAT:PATH"},
    ),
    Setting(
        "fail_on",
        "the lowest level that fails a test: note, warning, error (default), never",
        flag={"metavar": "LEVEL"},
    ),
    Setting("ignore", "rules whose findings are not reported, such as DG2 or DG105+DG201", flag={"metavar": "CODES"}),
    Setting("max_syncs_per_step", "more host syncs per step than this fail a test", flag={"metavar": "N"}),
)
MARK = (
    "devguard(fail_on=..., max_syncs_per_step=..., ignore=[...], simulate='cuda:2', ...): "
    "watch this test; the keywords are devguard's options"
)

_session_key: pytest.StashKey[Session] = pytest.StashKey()
_watch_key: pytest.StashKey[ItemWatch] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """One command-line option and one ini key per setting."""
    group = parser.getgroup("devguard", "devguard: devices that diverge, host syncs")
    for setting in SETTINGS:
        group.addoption(setting.option, dest=setting.key, help=setting.help, **setting.flag)
        parser.addini(setting.key, setting.help, type=setting.ini, default=None)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Simulate before any conftest.py is imported: theirs may ask for a device at once."""
    _begin(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; begin here where the plugin was loaded too late for the hook above."""
    config.addinivalue_line("markers", MARK)
    if _session_key not in config.stash:
        _begin(config, config.option)


def _begin(config: pytest.Config, options: Any) -> None:
    from devguard._pytest_session import Session

    config.stash[_session_key] = session = Session(config, options, SETTINGS)
    config.pluginmanager.register(session, "devguard-session")  # it collects the tests' reports
    config.add_cleanup(session.close)
    session.open()


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is watched and simulated, or why nothing is."""
    return config.stash[_session_key].header()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse bad options before any test runs (a worker of pytest-xdist can't: there the test itself fails)."""
    session = config.stash[_session_key]
    for item in [] if hasattr(config, "workerinput") else items:
        if session.wants(item):
            session.options_for(item)


@pytest.fixture
def device_watch(request: pytest.FixtureRequest) -> Watch:
    """The Watch around this test. The test fails with its report when a finding reaches the level (default: error)."""
    return request.node.stash[_watch_key].watch  # type: ignore[no-any-return]


# The watch begins before the test's fixtures and ends right after the test function; a simulation that only this test
# asked for ends after its fixtures are gone.


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    session = item.config.stash[_session_key]
    if session.wants(item):
        from devguard._pytest_watch import ItemWatch

        try:
            options = session.options_for(item)
        except pytest.UsageError as problem:
            pytest.fail(str(problem), pytrace=False)
        item.stash[_watch_key] = watch = ItemWatch(options)
        watch.begin()
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    watch = item.stash.get(_watch_key, None)
    try:
        result = yield
    except BaseException as error:
        if watch is not None:
            watch.end(error)
        raise
    if watch is not None:
        watch.end()
        watch.judge()
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    watch = item.stash.get(_watch_key, None)
    if watch is not None:
        watch.end()  # where the set-up failed, no test function ran
    try:
        return (yield)
    finally:
        if watch is not None:
            watch.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """Hang devguard's report on the test's: pytest-xdist carries it to the process that tells the user."""
    result = yield
    watch = item.stash.get(_watch_key, None)
    if watch is not None and (call.when == "call" or (call.when == "setup" and result.failed)):
        watch.attach(result)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What all tests found, one line per finding, and the reports asked for with --devguard-report."""
    config.stash[_session_key].summarize(terminalreporter)
