"""Keeping runs, labels, training and replies: SQLAlchemy lives here and nowhere else. Start at `store.Store`."""
