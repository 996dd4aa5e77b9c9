"""Alembic's entry point: migrates on the connection that `storage.database` hands over.

That connection is inside a transaction holding the database's write lock, so two processes never migrate at once
and a failed migration leaves nothing behind. There is no offline mode.
"""

from __future__ import annotations

from alembic import context

from storage.schema import in_models, metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("Migrations run from Store.open(url); the alembic command line is not set up.")
context.configure(connection=connection, target_metadata=metadata, include_object=in_models)
context.run_migrations()
