"""Questions in two steps, each for another member of the pool: the second step works on the first one's result.

The joints below combine the steps (`steps`) the way people write: in two sentences, or with "then". A draw is
repeated when the final answer equals the intermediate one, so that half the work never scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from trinity_core.tasks.operation import Draft
from trinity_core.tasks.steps import (
    CALENDAR_COUNTS,
    CALENDAR_NAMES,
    FACT_COUNTS,
    FACT_NAMES,
    LETTER_COUNTS,
    THEN_ARITHMETIC,
    THEN_CALENDAR,
    THEN_LETTERS,
    THEN_NUMBER_LETTERS,
    First,
    Second,
    calculation,
)

PER_CHAIN = 16
"""Questions for each pair of domains."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A pair of domains with the steps to choose from."""

    name: str
    firsts: tuple[First, ...]
    seconds: tuple[Second, ...]

    def drafts(self) -> Iterator[Draft]:
        seen: set[str] = set()
        attempt = 0
        while len(seen) < PER_CHAIN:
            draft = self._draft(len(seen), attempt, seen)
            attempt += 1
            if draft is not None:
                yield draft

    def _draft(self, index: int, attempt: int, seen: set[str]) -> Draft | None:
        """The question number `index`: its joint and steps follow from the index, its values from the attempt.

        `seen` collects what first steps asked for; nothing is asked for twice."""
        rng = Random(f"{self.name}/{attempt}")
        joint = JOINTS[index % len(JOINTS)]
        first = self.firsts[index % len(self.firsts)]
        second = self.seconds[(index // len(self.firsts) + attempt) % len(self.seconds)]
        values, middle = first.draw(rng)
        if (topic := str(values)) in seen:
            return None
        drawn = second.draw(rng, middle)
        if drawn is None or str(drawn[1]).casefold() == str(middle).casefold():
            return None
        seen.add(topic)
        parts = {
            "ask1": rng.choice(first.ask).format(**values),
            "do1": rng.choice(first.do).format(**values),
            "ask2": rng.choice(second.ask).format(**drawn[0]),
            "do2": rng.choice(second.do).format(**drawn[0]),
        }
        capital = {name[0].upper() + name[1:]: text[0].upper() + text[1:] for name, text in parts.items()}
        grader = "numeric" if isinstance(drawn[1], int) else "exact"
        return Draft(joint.format(**parts, **capital), str(drawn[1]), grader, (self.name,))


JOINTS = (
    "{Ask1} {Do2}.",
    "{Do1}, then {do2}.",
    "{Ask1} {Ask2}",
    "First {do1}. Then {do2}.",
    "{Do1} and {do2}.",
    "{Do1}. {Ask2}",
    "{Ask1} Now {do2}.",
    "{Do1}. After that, {do2}.",
)


CHAINS: tuple[Chain, ...] = (
    Chain("letters_arithmetic", LETTER_COUNTS, THEN_ARITHMETIC),
    Chain("calendar_arithmetic", CALENDAR_COUNTS, THEN_ARITHMETIC),
    Chain("arithmetic_calendar", calculation(8, 90), THEN_CALENDAR),
    Chain("arithmetic_letters", calculation(2, 20), THEN_NUMBER_LETTERS),
    Chain("calendar_letters", CALENDAR_NAMES, THEN_LETTERS),
    Chain("knowledge_letters", FACT_NAMES, THEN_LETTERS),
    Chain("knowledge_arithmetic", FACT_COUNTS, THEN_ARITHMETIC),
)
