"""What the specialists know: a module for each skill (symbolic, lexical, calendar) and what it computes with."""
