"""What is known of a plugin's distribution where its metadata is damaged or missing."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from atrex_core.plugins import PluginHost, PluginOrigin

FIRST_PARTY = {entry.name for entry in metadata.entry_points(group="atrex_eval")}


@pytest.mark.parametrize(
    ("facts", "distribution", "version"),
    [
        pytest.param("Name: odd\nVersion: 3\n", "odd", "3", id="both"),
        pytest.param("Name: odd\n", "odd", None, id="no version"),
        pytest.param("Version: 3\n", "unknown distribution", "3", id="no name"),
        pytest.param(None, "unknown distribution", None, id="no file"),
    ],
)
def test_plugins_work_whatever_their_distribution_says_of_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: str | None,
    distribution: str,
    version: str | None,
) -> None:
    info = tmp_path / "odd-3.dist-info"
    info.mkdir()
    (tmp_path / "a_bare_plugin.py").touch()
    (tmp_path / "another_bare_plugin.py").touch()
    (info / "entry_points.txt").write_text(
        "[atrex_eval]\nfirst = a_bare_plugin\nsecond = another_bare_plugin\n"
    )
    if facts is not None:
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{facts}")
    monkeypatch.syspath_prepend(str(tmp_path))

    host = PluginHost.discover(FIRST_PARTY)

    assert host.plugins == (
        PluginOrigin("first", distribution, version),
        PluginOrigin("second", distribution, version),
    )
