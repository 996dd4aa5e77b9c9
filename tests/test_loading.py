"""Which checkpoint a home folder uses: deploying, going back, and finding one by what a user types."""

from __future__ import annotations

from pathlib import Path

import pytest

from trinity_core.config import Settings
from trinity_core.errors import CheckpointError, InputError
from trinity_core.session.loading import (
    checkpoint_path,
    deploy,
    deployed_id,
    deployed_path,
    find_checkpoint,
    revert,
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(tmp_path, "sqlite://")
    made.checkpoints.mkdir()
    return made


def kept(settings: Settings, *ids: str) -> None:
    for id in ids:
        checkpoint_path(settings, id).write_bytes(id.encode())


def test_reverting_swaps_with_what_was_used_before(settings: Settings) -> None:
    kept(settings, "aa11", "bb22")
    deploy(settings, "aa11")
    deploy(settings, "bb22")
    assert (deployed_id(settings), deployed_path(settings)) == ("bb22", checkpoint_path(settings, "bb22"))
    assert revert(settings) == "aa11" == deployed_id(settings)
    assert revert(settings) == "bb22" == deployed_id(settings)


def test_reverting_the_first_deployment_gives_the_shipped_head_and_back(settings: Settings) -> None:
    kept(settings, "aa11")
    assert revert(settings) is None
    assert not settings.deployed.exists()
    deploy(settings, "aa11")
    assert revert(settings) is None
    assert deployed_path(settings) is None
    assert revert(settings) == "aa11" == deployed_id(settings)


def test_deploying_the_same_twice_does_not_lose_the_one_before(settings: Settings) -> None:
    kept(settings, "aa11", "bb22")
    for id in ("aa11", "bb22", "bb22"):
        deploy(settings, id)
    assert revert(settings) == "aa11"


@pytest.mark.parametrize("content", [b"aa11", b"aa11\n", b"\xef\xbb\xbfaa11\r\n"], ids=["bare", "line", "notepad"])
def test_files_with_one_line_work_as_before(content: bytes, settings: Settings) -> None:
    kept(settings, "aa11", "bb22")
    settings.deployed.write_bytes(content)
    assert deployed_path(settings) == checkpoint_path(settings, "aa11")
    deploy(settings, "bb22")
    assert revert(settings) == "aa11"
    settings.deployed.write_bytes(content)
    assert revert(settings) is None


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"../../etc/passwd", b"a b\naa11\n", b"\n"])
def test_an_unreadable_choice_is_an_error_and_can_be_replaced(content: bytes, settings: Settings) -> None:
    kept(settings, "aa11")
    settings.deployed.write_bytes(content)
    with pytest.raises(CheckpointError, match="does not name a checkpoint"):
        deployed_path(settings)
    deploy(settings, "aa11")
    assert deployed_id(settings) == "aa11"
    assert revert(settings) is None


def test_reverting_to_what_is_gone_or_garbled_changes_nothing(settings: Settings) -> None:
    kept(settings, "aa11", "bb22")
    deploy(settings, "aa11")
    deploy(settings, "bb22")
    checkpoint_path(settings, "aa11").unlink()
    with pytest.raises(CheckpointError, match="missing"):
        revert(settings)
    assert deployed_id(settings) == "bb22"
    settings.deployed.write_text("bb22\n../x\n")
    with pytest.raises(CheckpointError, match="from before"):
        revert(settings)
    assert deployed_id(settings) == "bb22"


def test_a_choice_that_cannot_be_written_leaves_the_old_one_and_no_litter(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(settings, "aa11")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="space"):
        deploy(settings, "bb22")
    assert deployed_id(settings) == "aa11"
    assert sorted(path.name for path in settings.home.iterdir()) == ["checkpoints", "deployed.txt"]


def test_a_checkpoint_is_found_by_path_id_beginning_and_word(settings: Settings, tmp_path: Path) -> None:
    kept(settings, "aa11", "aa22", "aa2", "bb33")
    outside = tmp_path / "mine.safetensors"
    outside.write_bytes(b"x")
    deploy(settings, "bb33")
    assert find_checkpoint(settings, "shipped") == settings.shipped_head
    assert find_checkpoint(settings, "deployed") == checkpoint_path(settings, "bb33")
    assert find_checkpoint(settings, str(outside)) == outside
    assert find_checkpoint(settings, "b") == checkpoint_path(settings, "bb33")
    assert find_checkpoint(settings, "aa2") == checkpoint_path(settings, "aa2")  # a whole id, though others go on
    assert find_checkpoint(settings, "aa11.safetensors") == checkpoint_path(settings, "aa11")


@pytest.mark.parametrize(
    ("named", "part"),
    [
        ("aa", "2 checkpoints begin"),
        ("zz", "no checkpoint 'zz'"),
        ("", "There is no checkpoint"),
        ("/nowhere/x.safetensors", "It holds: aa11"),
        ("*", "There is no checkpoint"),
        ("x" * 5000, "There is no checkpoint"),
        ("a\0b", "There is no checkpoint"),
        ("~no-such-user-here/x", "There is no checkpoint"),
        ("deployed", "No checkpoint is deployed"),
    ],
)
def test_what_names_no_checkpoint_is_told_with_what_there_is(named: str, part: str, settings: Settings) -> None:
    kept(settings, "aa11", "aa22")
    with pytest.raises(InputError, match=part.replace("*", r"\*")):
        find_checkpoint(settings, named)


def test_a_deployed_checkpoint_that_is_missing_is_named(settings: Settings) -> None:
    deploy(settings, "aa11")
    with pytest.raises(InputError, match=r"aa11\.safetensors is missing"):
        find_checkpoint(settings, "deployed")
