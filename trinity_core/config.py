"""Settings: the only reader of environment variables, and the only place that knows where files lie.

Precedence: a flag given to `Settings.load`, then the environment, then the default.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import platformdirs

from trinity_core.errors import ConfigError
from trinity_core.wire import remember_secret

MAX_QUESTION_CHARS = 100_000
"""Longest message accepted, in characters."""
LOADING = Lock()
"""Held while transformers loads a model: it swaps torch's default type and methods of its own classes for the whole
process meanwhile, and two loads at once were seen to leave them swapped for good."""


def login_from(variable: str) -> tuple[str, str]:
    """The user name and password that an environment variable holds as `user:password`.

    Raises ConfigError when it is not set or not of that form; the message never quotes its value.
    """
    user, colon, password = os.environ.get(variable, "").partition(":")
    if not (user and colon and password):
        raise ConfigError(f"Set the environment variable {variable} to user:password, then start again.")
    remember_secret(password)
    return user, password


def api_key_from(variable: str) -> str:
    """The key that callers of the API must send, from an environment variable. Raises ConfigError when it is not
    set, or too short to be safe; the message never quotes it."""
    key = secret_from(variable)
    if key is None or len(key) < 16:
        state = "is not set" if key is None else "holds fewer than 16 characters"
        raise ConfigError(
            f"The environment variable {variable} {state}. Put a long random key there, for example the output of: "
            "openssl rand -hex 24"
        )
    return key


def secret_from(variable: str) -> str | None:
    """What the environment variable holds, without blanks around it; None when it is not set or empty. Redaction
    knows it from here on."""
    value = os.environ.get(variable, "").strip()
    if not value:
        return None
    remember_secret(value)
    return value


def _path(named: str | Path, what: str, where_from: str) -> Path:
    try:
        return Path(named).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such user, links in a circle
        raise ConfigError(f"The {what} {named} cannot be found ({error}). Check {where_from}.") from None


def _sqlite_url(path: Path) -> str:
    # A question mark would begin the URL's query, and %41 be read as A: the file would end up elsewhere.
    return "sqlite:///" + str(path).replace("%", "%25").replace("?", "%3F")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are and which models to use.

    `backbone` is None for the embedded SmolLM2-135M, else a Hugging Face id or a local path.
    `device` is cuda, mps, cpu or None (the best there is).
    """

    home: Path
    db_url: str
    backbone: str | None = None
    pool: Path | None = None
    device: str | None = None

    @property
    def models(self) -> Path:
        return self.home / "models"

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    @property
    def deployed(self) -> Path:
        """Names the checkpoint that the coordinator uses here; absent while that is the shipped one."""
        return self.home / "deployed.txt"

    @property
    def shipped_head(self) -> Path:
        """The head trained for the embedded backbone and pool."""
        return Path(__file__).resolve().parent.parent / "assets" / "head-embedded.safetensors"

    @classmethod
    def load(
        cls,
        *,
        home: str | Path | None = None,
        backbone: str | None = None,
        pool: str | Path | None = None,
        device: str | None = None,
    ) -> Settings:
        """Read flags and environment, and create the home folder.

        Environment: TRINITY_HOME, TRINITY_DB_URL. Raises ConfigError when the home folder cannot be written.
        """
        named = home or os.environ.get("TRINITY_HOME") or platformdirs.user_data_dir("trinity", False)
        where = _path(named, "home folder", "--home or TRINITY_HOME")
        try:
            where.mkdir(parents=True, exist_ok=True)
            probe = where / f".write-test-{os.getpid()}"
            probe.write_bytes(b"trinity")
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"The home folder {where} cannot be written ({error.strerror or error}). Free some space or fix "
                "its permissions, or name another one with --home or TRINITY_HOME."
            ) from None
        pool_path = _path(pool, "pool file", "--pool") if pool else where / "pool.toml"
        there = os.path.isfile(pool_path)  # False, not an error, where a folder must not be read
        if pool and not there:
            raise ConfigError(f"There is no pool file at {pool_path}. Check the path given to --pool.")
        return cls(
            home=where,
            db_url=os.environ.get("TRINITY_DB_URL") or _sqlite_url(where / "trinity.db"),
            backbone=backbone,
            pool=pool_path if there else None,
            device=device,
        )
