"""Settings: precedence, and a home folder that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trinity_core.config import Settings
from trinity_core.errors import ConfigError


def test_flag_beats_environment_beats_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINITY_HOME", str(tmp_path / "env"))
    assert Settings.load().home == tmp_path / "env"
    assert Settings.load(home=tmp_path / "flag").home == tmp_path / "flag"
    assert Settings.load().db_url == f"sqlite:///{tmp_path / 'env' / 'trinity.db'}"
    monkeypatch.setenv("TRINITY_DB_URL", "postgresql+psycopg://localhost/x")
    assert Settings.load().db_url == "postgresql+psycopg://localhost/x"


def test_pool_file_of_the_home_folder_is_found(tmp_path: Path) -> None:
    assert Settings.load(home=tmp_path).pool is None
    (tmp_path / "pool.toml").write_text("")
    assert Settings.load(home=tmp_path).pool == tmp_path / "pool.toml"


def test_missing_pool_file_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        Settings.load(home=tmp_path, pool=tmp_path / "nowhere.toml")


def test_home_that_is_a_file_names_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="TRINITY_HOME"):
        Settings.load(home=tmp_path / "file")


@pytest.mark.parametrize("name", ["~no-such-user-here/trinity", "loop"])
def test_a_home_that_leads_nowhere_names_the_fix(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ConfigError, match="--home or TRINITY_HOME"):
        Settings.load(home=name)


@pytest.mark.parametrize("name", ["plain", "with blank", "ü 日本", "50 % #1", "100%41", "really?", "a?b=c&d"])
def test_the_database_lies_in_the_home_folder_whatever_its_name(name: str, tmp_path: Path) -> None:
    from storage.store import Store

    Store.open(Settings.load(home=tmp_path / name).db_url).close()
    assert (tmp_path / name / "trinity.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_home_names_the_fix(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="--home"):
        Settings.load(home=tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, where nobody may write, not even root")
def test_a_home_where_nobody_can_write_names_the_fix() -> None:
    with pytest.raises(ConfigError, match="--home or TRINITY_HOME"):
        Settings.load(home="/proc/self/trinity")
