"""Where a grid search is kept: a database, opened by its URL, and what its errors mean in one line."""

from pathlib import Path
from typing import Optional

import optuna
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from .files import exclusive

BEAT, GRACE = 15, 90  # seconds between a trial's signs of life; after GRACE without one its process is dead


def open_storage(url: Optional[str], folder: Path) -> optuna.storages.RDBStorage:
    """The storage of a URL; by default an SQLite file in the folder.

    Raises:
        ValueError: no URL of a database, no driver for it, or it can't be opened.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--save-dir {folder} can't be made ({error.strerror}); give a folder") from None
    try:
        address = make_url(url) if url else URL.create("sqlite", database=str(folder / "search.db"))
    except (ArgumentError, ValueError):  # the message doesn't repeat the URL, which may have a password
        raise ValueError("--storage is no URL; give sqlite:///FILE or postgresql://USER@HOST/DATABASE") from None
    if address.drivername in ("postgres", "postgresql"):
        address = address.set(drivername="postgresql+psycopg")  # the driver in our extra
    kind = address.drivername.partition("+")[0]
    if kind == "sqlite" and address.database in (None, "", ":memory:"):
        raise ValueError("--storage sqlite keeps nothing without a file; give sqlite:///FILE")
    where = f"--storage {kind}://{address.host or ''}/{address.database or ''}"
    connect = {"sqlite": {"timeout": 60}, "postgresql": {"connect_timeout": 10}}.get(kind, {})
    try:
        with exclusive(folder):  # SQLite: one at a time makes the tables
            return optuna.storages.RDBStorage(
                address.render_as_string(hide_password=False),
                engine_kwargs={"connect_args": connect, "pool_pre_ping": True},
                heartbeat_interval=BEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
            )
    except ImportError:
        raise ValueError(f"{where} has no driver; PostgreSQL's: pip install 'psycopg[binary]'") from None
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
        raise ValueError(
            f"{where} can't be opened ({cause(error)}); check the URL, and that the database is there"
        ) from None


def storage_error(error: Optional[BaseException]) -> Optional[BaseException]:
    """The storage's error in whose wake this one was raised, if there is one."""
    while error is not None and not isinstance(error, (SQLAlchemyError, optuna.exceptions.StorageInternalError)):
        error = error.__cause__ or error.__context__
    return error


def cause(error: BaseException) -> str:
    """The driver's own message, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())
