"""Alembic's folder. `Store.open` runs it; `alembic.ini` is not needed."""
