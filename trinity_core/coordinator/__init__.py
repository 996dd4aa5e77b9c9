"""The coordinator: what it reads, the model that reads it, its head, its decisions, and its checkpoints."""
