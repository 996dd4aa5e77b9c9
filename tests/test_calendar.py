"""The calendar skill against references worked out by hand, what it must decline, and bounded noise.

References come from the Gregorian rules, the international yard and pound (1959), the SI, and known anchors
(1 January 2000 was a Saturday; 1 January 1970, 00:00 UTC is Unix time 0).
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_core.agents import measures
from trinity_core.agents.calendar import Calendar
from trinity_core.agents.wording import show

SKILL = Calendar()

DATES = [
    ("What day of the week was 14 March 2024?", "Thursday"),
    ("What day of the week was 1 January 2000?", "Saturday"),
    ("What day is July 4, 1776?", "Thursday"),
    ("On which day of the week did 20 July 1969 fall?", "Sunday"),
    ("What day of the week is 2024-02-29?", "Thursday"),
    ("what weekday is 25 Dec 2024", "Wednesday"),
    ("What day of the week is 3/14/2024?", "Thursday"),
    ("What day of the week is 14.03.2024?", "Thursday"),
    ("Is 25 December 2024 a Wednesday?", "Yes"),
    ("Is 14 March 2024 on a weekend?", "No"),
    ("What date is 42 days after 1 March 2023?", "12 April 2023"),
    ("What date is 10 days before March 5, 2024?", "24 February 2024"),
    ("What is the date 3 weeks after 2024-02-15?", "7 March 2024"),
    ("What is 1 month after 31 January 2024?", "29 February 2024"),
    ("Add 1 month to 31 January 2023", "28 February 2023"),
    ("Add 2 years to 29 February 2024", "28 February 2026"),
    ("Subtract 6 months from 15 August 2023", "15 February 2023"),
    ("What day of the week is 100 days after 1 January 2024?", "Wednesday"),
    ("What is the day after 31 December 2023?", "1 January 2024"),
    ("If today is 14 March 2024, what date was it 2 weeks ago?", "29 February 2024"),
    ("What date is 10 days after 25 March?", "4 April"),
    ("How many days are between 1 January 2024 and 1 March 2024?", "60"),
    ("How many days are between 1 January 2023 and 1 March 2023?", "59"),
    ("How many days from 1 March 2024 to 15 March 2024 inclusive?", "15"),
    ("How many days are there from December 20 to January 5, 2025?", "16"),
    ("How many days from March 1 to April 15?", "45"),
    ("How many weeks are between 1 January 2024 and 29 January 2024?", "4"),
    ("How many weeks are between 1 January 2024 and 15 February 2024?", "6 weeks 3 days"),
    ("How many months are between 15 January 2023 and 15 June 2024?", "17"),
    ("How many years are between 1 March 1990 and 1 March 2024?", "34"),
    ("How long is it from 1 January 2020 to 1 January 2024?", "1461 days"),
    ("How many hours are between 1 March 2024 10:00 and 2 March 2024 12:30?", "26.5"),
    ("How old was someone born on 15 May 1990 on 14 May 2020?", "29"),
    ("How old was someone born on 15 May 1990 on 15 May 2020?", "30"),
    ("Was 1900 a leap year?", "No"),
    ("Is 2000 a leap year?", "Yes"),
    ("What is the next leap year after 1896?", "1904"),
    ("How many leap years are there between 2000 and 2024?", "7"),
    ("How many days does February 2024 have?", "29"),
    ("How many days are in April?", "30"),
    ("How many days are in February in a leap year?", "29"),
    ("How many days are in 2023?", "365"),
    ("How many Fridays are in 2024?", "52"),
    ("How many Mondays are in January 2024?", "5"),
    ("What date is the third Monday of January 2025?", "20 January 2025"),
    ("When is the last Friday of March 2023?", "31 March 2023"),
    ("What date is the 100th day of 2024?", "9 April 2024"),
    ("When is Easter 2025?", "20 April 2025"),
    ("What day number of the year is 1 March 2024?", "61"),
    ("What ISO week is 1 January 2021 in?", "53"),
    ("What is the ISO week number of 30 December 2024?", "1"),
    ("Which is earlier, 14 March 2024 or 2 April 2023?", "2 April 2023"),
    ("Write 14 March 2024 in ISO format", "2024-03-14"),
    ("Is 29 February 2023 a valid date?", "No"),
    ("What day of the week is 30 February 2024?", "30 February 2024 does not exist"),
    ("If today is Monday, what day will it be in 100 days?", "Wednesday"),
    ("What day is 3 days before Sunday?", "Thursday"),
    ("If yesterday was Monday, what day is tomorrow?", "Wednesday"),
    ("What month comes after December?", "January"),
    ("What is the 7th month of the year?", "July"),
]

TIMES = [
    ("What time is 2 h 45 min after 9:50 am?", "12:35 pm"),
    ("2 h 45 min after 9:50 am", "12:35 pm"),
    ("What time will it be 90 minutes after 23:00?", "00:30"),
    ("Subtract 2 hours from 1:00 am", "11:00 pm"),
    ("If it is 10:45 am, what time will it be in 3 hours and 30 minutes?", "2:15 pm"),
    ("How long is it from 14:35 to 17:10?", "2 hours 35 minutes"),
    ("How many minutes are there between 14:35 and 17:10?", "155"),
    ("How many hours are there between 9 am and 5 pm?", "8"),
    ("How many hours are there from 22:00 to 06:00?", "8"),
    ("A train leaves at 9:50 am and arrives at 12:35 pm. How long is the journey?", "2 hours 45 minutes"),
    ("A film begins at 18:40 and runs for 135 minutes. At what time does it finish?", "20:55"),
    ("Convert 2:35 pm to 24-hour time", "14:35"),
    ("What is 00:15 in 12-hour format?", "12:15 am"),
    ("Convert 14:00 UTC to EST", "09:00"),
    ("Convert 14:00 UTC to UTC+5:30", "19:30"),
    ("What time is it in Tokyo when it is 12:00 UTC?", "21:00"),
    ("Convert 1 July 2024 12:00 London to New York", "1 July 2024, 07:00"),
    ("Convert the Unix timestamp 1700000000 to a date in UTC", "14 November 2023, 22:13:20 UTC"),
    ("What is the Unix timestamp of 1 January 2000?", "946684800"),
    ("How many minutes are in 3 hours and 20 minutes?", "200"),
    ("Convert 5,400 seconds to hours", "1.5"),
    ("How many seconds are in an hour and a half?", "5400"),
    ("What is three quarters of an hour in minutes?", "45"),
    ("How many days are in two weeks?", "14"),
    ("Convert 135 minutes to hours and minutes", "2 hours 15 minutes"),
    ("What is 2 hours 30 minutes plus 45 minutes?", "3 hours 15 minutes"),
    ("How many hours are in 2h 30m?", "2.5"),
    ("How many weeks are there in 100 days?", "14.2857"),
]

UNITS = [
    ("Convert 98.6 F to Celsius", "37"),
    ("Convert 100 degrees Celsius to Fahrenheit", "212"),
    ("What is -40 °C in Fahrenheit?", "-40"),
    ("Convert 300 K to Celsius", "26.85"),
    ("what's 20c in f", "68"),
    ("How many centimetres are in 2.5 metres?", "250"),
    ("5 feet 11 inches in cm", "180.34"),
    ("How tall is 5'11\" in cm?", "180.34"),
    ("Convert 71 inches to feet and inches", "5 feet 11 inches"),
    ("Convert 5 miles to kilometers", "8.04672"),
    ("Convert 10 km to miles", "6.21371"),
    ("How many feet are in a mile?", "5280"),
    ("Convert 3/4 mile to km", "1.207008"),
    ("How many ounces are in a pound?", "16"),
    ("Convert 2 kg to g", "2000"),
    ("How many litres are in 2 gallons?", "7.570823568"),
    ("How many litres are in 2 imperial gallons?", "9.09218"),
    ("How many cups are in a gallon?", "16"),
    ("Convert 60 mph to km/h", "96.56064"),
    ("Convert 36 km/h to m/s", "10"),
    ("How many square metres are in 1 hectare?", "10000"),
    ("How many acres are in a square mile?", "640"),
    ("Convert 1 kWh to joules", "3600000"),
    ("How many bytes are in 2 KiB?", "2048"),
    ("How many megabytes are in 1.5 GB?", "1500"),
    ("Convert 100 Mb to MB", "12.5"),
    ("Convert 2 atm to pascals", "202650"),
    ("Convert 180 degrees to radians", "3.14159"),
    ("Which is longer, 1 mile or 1500 m?", "1 mile"),
    ("Which is hotter, 30 °C or 80 °F?", "30 °C"),
    ("Is 5 km longer than 3 miles?", "Yes"),
    ("Is 1 km the same as 1000 m?", "Yes"),
    ("What is 1.5 km plus 300 m?", "1.8 kilometres"),
    ("How many months are in 3 years?", "36"),
]

OUTSIDE = [
    "",
    "   ",
    "hello",
    "?!?",
    "What's the capital of France?",
    "Who wrote Hamlet?",
    "When did World War II end?",
    "How long is the Nile?",
    "Solve x+2=5",
    "What is 17 times 23?",
    "What is 5 + 3?",
    "What is 2024 - 1999?",
    "How many people live in Spain?",
    "How many legs does a spider have?",
    "What happened on 14 July 1789?",
    "Convert 100 dollars to euros",
    "How many calories are in an apple?",
    "How tall is Mount Everest in feet?",
    "Convert 5 kg to metres",
    "How many days are in a month?",
    "What day of the week is 14 March?",
    "What is today's date?",
    "How many days until 25 December 2030?",
    "How many letters does Tuesday have?",
    "Spell March backwards",
    "How many r's are in strawberry?",
    "Convert 1e400 m to km",
    "Convert 9**9**9**9 m to km",
    "Convert 5 __import__('os') to km",
    "What time is it in Paris when it is 12:00 UTC?",
    "May I ask 2 questions?",
]


VOCABULARY = (
    "How many days what is between and 14 March 2024 31 February 9999-12-31 0001-01-01 0000-00-00 25:61 9:50 am 99 "
    "after before Monday convert to km °C F 1e99 -0 1/0 UTC Unix timestamp 99999999999999 years month leap in born"
)


@pytest.mark.parametrize(("question", "value"), DATES + TIMES + UNITS)
def test_known_answers(question: str, value: str) -> None:
    found = SKILL.solve(question)
    assert found is not None
    assert found.value == value
    assert found.working


@pytest.mark.parametrize("question", OUTSIDE)
def test_outside_is_declined(question: str) -> None:
    assert SKILL.solve(question) is None


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What day of the week is 03/04/2024?", "month/day"),
        ("How many days from February 20 to March 5?", "without 29 February"),
        ("How many days are between 1 January 2024 and 1 March 2024?", "one end"),
        ("How many litres are in 2 gallons?", "US"),
        ("Convert 2 tons to kg", "short ton"),
        ("How many days are in 3 years?", "365"),
        ("Convert 10 km to miles", "rounded"),
        ("How many leap years are there between 2000 and 2024?", "both included"),
        ("How many hours are there from 22:00 to 06:00?", "next day"),
    ],
)
def test_assumptions_are_told(question: str, told: str) -> None:
    found = SKILL.solve(question)
    assert found is not None
    assert told in found.working


def test_the_present_needs_a_clock() -> None:
    clocked = Calendar(lambda: date(2024, 3, 14))
    answers = {
        "What is today's date?": "14 March 2024",
        "What day of the week is tomorrow?": "Friday",
        "How many days until Christmas 2024?": "286",
        "How many days until 1 January?": "293",
        "What date was 2 weeks ago?": "29 February 2024",
        "If today is Monday, what day will it be in 3 days?": "Thursday",
    }
    for question, value in answers.items():
        found = clocked.solve(question)
        assert found is not None, question
        assert found.value == value
    told = clocked.solve("What day of the week is tomorrow?")
    assert told is not None
    assert "15 March 2024" in told.working
    assert SKILL.solve("What day of the week is tomorrow?") is None


def test_every_spelling_has_a_definition_of_its_kind() -> None:
    for name, unit in measures.spellings().items():
        one = measures.to_base(Fraction(1), unit)
        assert measures.from_base(one, unit) == 1, name
        assert measures.to_base(Fraction(2), unit) > one, name


@pytest.mark.parametrize(
    ("value", "text", "exact"),
    [
        ("0", "0", True),
        ("37", "37", True),
        ("8.04672", "8.04672", True),
        ("1/3", "0.333333", False),
        ("-5/3", "-1.66667", False),
        ("1/7000", "0.000142857", False),
        ("123456789/7", "17636684.14", False),
        ("1e20", "1e+20", True),
    ],
)
def test_numbers_are_shown_without_noise(value: str, text: str, exact: bool) -> None:
    assert show(Fraction(value)) == (text, exact)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_solved_or_declined(text: str) -> None:
    found = SKILL.solve(text)
    assert found is None or (found.value and found.working)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(VOCABULARY.split()),
        max_size=16,
    )
)
def test_shuffled_vocabulary_never_raises(words: list[str]) -> None:
    SKILL.solve(" ".join(words))


@settings(max_examples=100, deadline=None)
@given(st.dates(), st.integers(-4000, 4000))
def test_shifts_and_gaps_agree(day: date, days: int) -> None:
    shifted = date.toordinal(day) + days
    if not 1 <= shifted <= date.max.toordinal() or not (day.year > 999 and date.fromordinal(shifted).year > 999):
        return
    way = "after" if days >= 0 else "before"
    found = SKILL.solve(f"What date is {abs(days)} days {way} {day.isoformat()}?")
    assert found is not None
    gap = SKILL.solve(f"How many days are between {day.isoformat()} and {found.value}?")
    assert gap is not None
    assert gap.value == str(abs(days))


@pytest.mark.timeout(20)
def test_noise_is_bounded() -> None:
    rng = random.Random(7)
    parts = ["1 ", "14 March 2024 ", "9:50 ", "an hour and ", "twenty-", "hundred ", "1,000,", "5'", '"']
    parts += ["how many ", "-", "e5", "三", "\0"]
    for part in parts:
        for size in (390, 3_990, 10_000):
            SKILL.solve(part * (size // len(part)))
    for _ in range(50):
        SKILL.solve("".join(rng.choice(parts) for _ in range(400)))


def test_threads_share_one_skill() -> None:
    questions = [question for question, _ in UNITS]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(Calendar().solve, questions * 3))
    assert [f.value for f in found if f] == [value for _, value in UNITS] * 3
