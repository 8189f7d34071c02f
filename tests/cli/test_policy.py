"""``gpsched policy``: names of orders, and settings by section and key."""

from typing import Any

import pytest

from gpsched.adaptive import client
from gpsched.adaptive.config import ORDERS, Config, Policy, overlay
from gpsched.adaptive.errors import ConfigError, UsageError
from gpsched.cli import main
from gpsched.cli.policy import parsed


@pytest.mark.parametrize("order", ORDERS)
def test_the_name_of_an_order_is_short_for_it(order: str) -> None:
    assert parsed(order) == ("policy", "order", order)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("reservations.be_floor=0.2", ("reservations", "be_floor", 0.2)),
        ("tenants.batch=3", ("tenants", "batch", 3)),
        ("reservations.level=hold", ("reservations", "level", "hold")),
    ],
)
def test_settings_by_section_and_key(text: str, meant: tuple[str, str, Any]) -> None:
    assert parsed(text) == meant


@pytest.mark.parametrize("text", ["fifo", "be_floor", "=1", "a=1"])
def test_anything_else_is_refused_with_what_is_possible(text: str) -> None:
    with pytest.raises(UsageError, match=r"SECTION\.KEY=VALUE"):
        parsed(text)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for the daemon: keeps settings as it does."""

    class Fake:
        settings = Config()

        def set(self, changes: dict[str, dict[str, Any]]) -> None:
            self.settings = overlay(self.settings, changes)

        def config(self) -> Config:
            return self.settings

        def __enter__(self) -> "Fake":
            return self

        def __exit__(self, *_: object) -> None: ...

    fake = Fake()
    monkeypatch.setattr(client, "Client", lambda *_args, **_named: fake)
    return fake


def test_an_order_is_switched_and_shown(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["policy", "share", "tenants.batch=3"]) == 0
    assert daemon.settings.policy == Policy(order="share")
    assert daemon.settings.tenants == {"batch": 3.0}
    shown = capsys.readouterr().out
    assert shown.startswith("# Several latency-critical processes on a GPU: by share. Others: deadline,")
    assert '[policy]\norder = "share"' in shown
    assert "[tenants]\nbatch = 3" in shown


@pytest.mark.parametrize("change", [{"policy": {"order": "fifo"}}, {"tenants": {"a": 0}}, {"tenants": {"a": "much"}}])
def test_wrong_values_change_nothing(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        overlay(Config(), change)
