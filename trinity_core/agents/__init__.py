"""Members of the pool: the `Agent` protocol, the local language model, the specialists, and the pool file.

Importing this package does no work; `pool` imports an implementation when an agent is first asked for.
"""
