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

from trinity_core.agents.skills import measures
from trinity_core.agents.skills.calendar import Calendar
from trinity_core.agents.skills.wording import show

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

# The same questions as people also put them: indirectly, as instructions, with fillers, as small stories.
WORDINGS = [
    ("It's March now. What month will it be in 5 months?", "August"),
    ("What month is 14 months after January?", "March"),
    ("Name the month 2 months before January", "November"),
    ("If it is October, which month is it 6 months later?", "April"),
    ("If it was October, which month was it 6 months ago?", "April"),
    ("Starting in May, what month is it after 9 months?", "February"),
    ("Which month comes 4 months before March?", "November"),
    ("Count 5 months forward from August. What month is it?", "January"),
    ("Go back 3 months from February. Which month do you reach?", "November"),
    ("We are in June. Which month will it be 8 months from now?", "February"),
    ("Tell me the month that falls 10 months after April.", "February"),
    ("Add 7 months to September. Which month is it?", "April"),
    ("A lease starts in April and ends 11 months later. In which month does it end?", "March"),
    ("7 months after November, what month is it?", "June"),
    ("Which month is it a year and a month after May?", "June"),
    ("Starting from Friday, which day of the week is it 45 days later?", "Monday"),
    ("If a parcel is posted on a Wednesday and arrives 9 days later, on what weekday does it arrive?", "Friday"),
    ("Which weekday comes 23 days before Sunday?", "Friday"),
    ("It is Saturday. Which day of the week will it be in 30 days?", "Monday"),
    ("Count 17 days forward from Tuesday. Which weekday is it?", "Friday"),
    ("Add 12 days to Thursday. What day is it?", "Tuesday"),
    ("Today is Sunday. What day was it 10 days ago?", "Thursday"),
    ("What day of the week is it 3 weeks and 2 days after Monday?", "Wednesday"),
    ("Name the weekday 40 days after Thursday.", "Tuesday"),
    ("Tell me which weekday is 8 days after Friday", "Saturday"),
    ("Which date comes 20 days after 25 February 2023?", "17 March 2023"),
    ("Which date lies 40 days before 2024-03-10?", "30 January 2024"),
    ("My exam is 15 days after 20 May 2021. What date is that?", "4 June 2021"),
    ("Go back 30 days from 15 March 2023. What's the date?", "13 February 2023"),
    ("Count forward 45 days from 1 July 2022. What date do you get?", "15 August 2022"),
    (
        "A film was released on 3 May 2010 and left cinemas 60 days later. On what date did it leave cinemas?",
        "2 July 2010",
    ),
    ("What will the date be 7 days after 28 December 2019?", "4 January 2020"),
    ("Starting from 10 October 2020, what is the date 100 days later?", "18 January 2021"),
    ("What date do you get if you add 33 days to 1 January 2001?", "3 February 2001"),
    ("Name the date 11 days before 5 July 2018.", "24 June 2018"),
    ("If it is 3 April 2019 now, how many days are left until 1 May 2019?", "28"),
    ("How many days separate 3 April 2019 and 1 May 2019?", "28"),
    ("How many days apart are 1 March 2020 and 1 February 2020?", "29"),
    ("Today is 1 June 2021. How many days have passed since 1 May 2021?", "31"),
    ("How many days after 4 March 2022 is 14 April 2022?", "41"),
    ("By how many days does 4 March 2022 precede 14 April 2022?", "41"),
    ("Calculate the days between 5 May 2005 and 5 June 2005.", "31"),
    ("Work out the number of days from 5 May 2005 to 5 June 2005", "31"),
    ("From 1 July 2020 to 1 September 2020, how many days pass?", "62"),
    ("Count the days from 10 January 2023 to 10 March 2023.", "59"),
    ("How long is April 1999 in days?", "30"),
    ("How many days does February have in 2012?", "29"),
    ("In 2019, how many days are in February?", "28"),
    ("Tell me how many days July 2031 has.", "31"),
    ("Count the days in November 2011.", "30"),
    ("What's the length of February 2000 in days?", "29"),
    ("How many days long is June 2005?", "30"),
    ("Find the number of days in December 1984", "31"),
    ("1996: leap year, yes or no?", "Yes"),
    ("Tell me whether 1800 was a leap year.", "No"),
    ("Is 2023 a leap year or not?", "No"),
    ("Did February have 29 days in 1900?", "No"),
    ("Is it true that 2024 is a leap year?", "Yes"),
    ("Can you tell me if 2400 will be a leap year?", "Yes"),
    ("Was the year 1600 a leap year? Answer yes or no.", "Yes"),
    ("A bus leaves at 08:50 and arrives 2 hours and 20 minutes later. When does it arrive?", "11:10"),
    ("A cake goes into the oven at 14:35 and is taken out 50 minutes later. At what time is it taken out?", "15:25"),
    ("The clock shows 10:45. What time will it show in 90 minutes?", "12:15"),
    ("Someone wakes up 40 minutes before 7:15 am. When do they wake up?", "6:35 am"),
    ("Tell me the day of the week on 4 July 1976.", "Sunday"),
    ("What weekday was 4 July 1976?", "Sunday"),
    ("4 July 1976 was what day of the week?", "Sunday"),
    ("Can you tell me what day of the week 4 July 1976 fell on?", "Sunday"),
    ("I'd like to know which weekday 4 July 1976 was.", "Sunday"),
    ("Name the weekday of 4 July 1976", "Sunday"),
    ("Which weekday did 4 July 1976 fall on?", "Sunday"),
    ("State the weekday for 4 July 1976", "Sunday"),
    ("Tell me how many minutes there are in 3 hours.", "180"),
    ("Work out how many hours 4 days have.", "96"),
    ("How many seconds are there in 5 minutes in total?", "300"),
    ("Please convert 6 feet into inches", "72"),
    ("I need 3 weeks in days.", "21"),
    ("Express 2 days in hours", "48"),
    ("Give me the number of ounces in 2 pounds", "32"),
    ("Turn 4 yards into feet.", "12"),
    ("How many metres is 3 km?", "3000"),
    ("90 minutes is how many hours?", "1.5"),
    ("What day was 4 July 1976?", "Sunday"),
    ("Which day of the week did 4 July 1976 fall on?", "Sunday"),
    ("4 July 1976 is which weekday?", "Sunday"),
    ("I was born on 4 July 1976. What day of the week was that?", "Sunday"),
    ("Find the weekday of 4 July 1976.", "Sunday"),
    ("Was 4 July 1976 a Sunday?", "Yes"),
    ("On which day of the week was 4 July 1976?", "Sunday"),
    ("What's the weekday on 1976-07-04?", "Sunday"),
    ("What will the date be 10 days from 25 May 2021?", "4 June 2021"),
    ("What date do you get 10 days after 25 May 2021?", "4 June 2021"),
    ("If today is 25 May 2021, what is the date in 10 days?", "4 June 2021"),
    ("Today is 25 May 2021. What will the date be in 10 days?", "4 June 2021"),
    ("Counting 10 days from 25 May 2021, which date do you reach?", "4 June 2021"),
    ("10 days after 25 May 2021 is which date?", "4 June 2021"),
    ("When is 10 days after 25 May 2021?", "4 June 2021"),
    ("My bill is due 10 days after 25 May 2021. When is it due?", "4 June 2021"),
    ("Subtract 10 days from 5 June 2021.", "26 May 2021"),
    ("What was the date 10 days earlier than 5 June 2021?", "26 May 2021"),
    ("Which date was 10 days prior to 5 June 2021?", "26 May 2021"),
    ("Today is 5 June 2021. What date was it 10 days ago?", "26 May 2021"),
    ("Count back 10 days from 5 June 2021.", "26 May 2021"),
    ("My exam is on 5 June 2021 and I start studying 10 days before. On what date do I start?", "26 May 2021"),
    ("How many days lie between 1 May 2021 and 20 May 2021?", "19"),
    ("How many days are there between 1 May 2021 and 20 May 2021?", "19"),
    ("How many days after 1 May 2021 comes 20 May 2021?", "19"),
    ("From 1 May 2021, how many days are there until 20 May 2021?", "19"),
    ("What's the number of days from 1 May 2021 until 20 May 2021?", "19"),
    ("How long is it from 1 May 2021 to 20 May 2021 in days?", "19"),
    ("Find the difference in days between 1 May 2021 and 20 May 2021.", "19"),
    ("How far apart are 1 May 2021 and 20 May 2021 in days?", "19"),
    ("Count the days between 1 May 2021 and 20 May 2021", "19"),
    ("If it is Monday today, which weekday will it be in 10 days?", "Thursday"),
    ("What day comes 10 days after Monday?", "Thursday"),
    ("10 days after a Monday, what day is it?", "Thursday"),
    ("Suppose today is Monday. What day of the week will it be after 10 days?", "Thursday"),
    ("It is Monday. Which day is it 10 days from now?", "Thursday"),
    ("A trip starts on a Monday and ends 10 days later. On which weekday does it end?", "Thursday"),
    ("Counting from Monday, which day of the week comes 10 days later?", "Thursday"),
    ("If an event is on a Monday, which weekday is it 10 days later?", "Thursday"),
    ("Tell me which day of the week it is 10 days after Monday.", "Thursday"),
    ("How many days long was May 2020?", "31"),
    ("What's the number of days in the month of May 2020?", "31"),
    ("May 2020 has how many days?", "31"),
    ("How many days were there in May 2020?", "31"),
    ("How many days did the month of May 2020 have?", "31"),
    ("Give the length of May 2020 in days.", "31"),
    ("In May 2020, how many days were there?", "31"),
    ("Did 2020 have 366 days?", "Yes"),
    ("2020 was a leap year, true or false?", "Yes"),
    ("Was 2020 a leap year?", "Yes"),
    ("Check whether 2020 is a leap year.", "Yes"),
    ("Would 2100 be a leap year?", "No"),
    ("Is 2100 going to be a leap year?", "No"),
    ("Did February 2020 have 29 days?", "Yes"),
    ("Decide if 2020 was a leap year; answer yes or no.", "Yes"),
    ("Say whether the year 2020 was a leap year.", "Yes"),
    ("It's 9:40. What time will it be in 2 hours and 30 minutes?", "12:10"),
    ("If it is 9:40 now, what time will it be in 50 minutes?", "10:30"),
    ("A film begins at 19:45 and runs for 2 hours 20 minutes. When does it finish?", "22:05"),
    ("Add 2 hours and 30 minutes to 9:40.", "12:10"),
    ("A lesson starts at 9:40 and lasts 50 minutes. What time does it end?", "10:30"),
    ("Which time is 50 minutes after 9:40?", "10:30"),
    ("The time is 9:40. What time is it 50 minutes later?", "10:30"),
    ("What will the time be 50 minutes after 9:40?", "10:30"),
    ("A bus departs at 9:40. The ride takes 50 minutes. When does it arrive?", "10:30"),
    ("A bus leaves at 09:40 and needs 50 minutes. At what time does it arrive?", "10:30"),
    ("Tell me the time 50 minutes after 9:40.", "10:30"),
    ("Which month will it be 5 months from March?", "August"),
    ("5 months after March it is which month?", "August"),
    ("In 5 months from March, what month will it be?", "August"),
    ("Counting 5 months on from March, which month is it?", "August"),
    ("If this month is March, what month will it be in 5 months?", "August"),
    ("The month is March. Which month is it 5 months later?", "August"),
    ("Suppose it's March. What month comes 5 months later?", "August"),
    ("How many feet are 4 yards?", "12"),
    ("A rope is 4 yards long. How many feet is that?", "12"),
    ("A rope is 4 yards long. How long is it in feet?", "12"),
    ("I ran 4 kilometers. How many meters is that?", "4000"),
    ("Tell me how many meters 4 kilometers are.", "4000"),
    ("4 kilometers equals how many meters?", "4000"),
    ("Express 4 kilometers in meters", "4000"),
    ("What's 4 kilometers expressed in meters?", "4000"),
    ("Could you convert 4 kilometers to meters?", "4000"),
    ("The film lasts 2 hours. How many minutes is that?", "120"),
    ("How many hours does 3 days equal?", "72"),
    ("How many grams does 3 kilograms make?", "3000"),
    ("A bag weighs 3 kilograms. What is its weight in grams?", "3000"),
    ("How much is 3 kilograms in grams?", "3000"),
    ("Give 3 kilograms in grams.", "3000"),
    ("What is 100 °C in °F?", "212"),
    ("It is 20 degrees Celsius outside. What is that in Fahrenheit?", "68"),
    ("Change 68 degrees Fahrenheit to Celsius", "20"),
    ("What temperature in Fahrenheit is 20 degrees Celsius?", "68"),
    ("If it's 20°C, what is the temperature in Fahrenheit?", "68"),
    ("Convert 20 Celsius into Fahrenheit", "68"),
    ("How hot is 20 degrees Celsius in Fahrenheit?", "68"),
    ("Water boils at 100 degrees Celsius. How many degrees Fahrenheit is that?", "212"),
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
    "It's March now. What is the weather in 5 months?",
    "If it is October, which month is best for apples?",
    "A meeting on Monday was moved 2 working days later. On what day is it?",
    "Name the month with the fewest days of sun",
    "Which month is Christmas in?",
    "A war began in June and ended 4 years later. Who won it?",
    "Today is Sunday. What day is Easter?",
    "What date is Thanksgiving?",
    "How long is the Nile in km?",
    "2012: best film, yes or no?",
    "Name the day the music died",
    "A train does not leave at 10:00 but arrives 3 hours later. When does it arrive?",
    "Name the capital of Russia",
    "How many days does a year on Mars have?",
    "Add 7 apples to the basket. How many are there?",
    "The war started in May 1940. What month did it end in?",
    "How many days did the Cuban missile crisis last?",
    "My sister was born on 3 May 2001 and my brother 400 days later. How old is my sister?",
    "A film ends at 22:00 and lasts 2 hours. When does it start?",
    "My train arrives at 9:40 and takes 50 minutes. When does it leave?",
    "A shop opens on Monday, closes 3 days later and reopens 2 days later. What day does it reopen?",
]


VOCABULARY = (
    "How many days what is between and 14 March 2024 31 February 9999-12-31 0001-01-01 0000-00-00 25:61 9:50 am 99 "
    "after before Monday convert to km °C F 1e99 -0 1/0 UTC Unix timestamp 99999999999999 years month leap in born"
)


@pytest.mark.parametrize(("question", "value"), DATES + TIMES + UNITS + WORDINGS)
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
