"""The lexical skill against references worked out by hand, what it must decline, and bounded noise."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_core.agents import ciphers
from trinity_core.agents.lexical import Lexical
from trinity_core.agents.wording import cardinal, integer, ordinal, place

SKILL = Lexical()

COUNTS = [
    ("How many r's are in strawberry?", "3"),
    ("How many R's are there in the word 'Strawberry'?", "3"),
    ("how many rs in strawberry", "3"),
    ("how often does the letter e appear in 'development'", "3"),
    ('How many times does the letter "s" occur in “Mississippi”?', "4"),
    ("In the word banana, how many a's are there?", "3"),
    ("Count the number of s in 'possess'", "4"),
    ("How many 'p's are in 'apple'?", "2"),
    ("How many lowercase a's are in 'Abracadabra'?", "4"),
    ("How many z's are in 'banana'?", "0"),
    ("How many times does 'ana' appear in 'banana'?", "2"),
    ("How many times does 'the' appear in 'the cat and the other hat'?", "2"),
    ("How many letters does Paris have?", "5"),
    ("How many letters are in the word 144?", "3"),
    ("How many letters does 42 have when written in words?", "8"),
    ("How many letters are in New York?", "7"),
    ('How many letters are in "don\'t"?', "4"),
    ("How many letters are in the alphabet?", "26"),
    ("How many digits does 144 have?", "3"),
    ('How many vowels are in the word "queue"?', "4"),
    ("Count the vowels: banana", "3"),
    ("How many consonants does 'rhythm' have?", "6"),
    ('How many words are in the sentence "The quick brown fox jumps"?', "5"),
    ("Here is a sentence: 'Dogs bark loudly'. How many words does it have?", "3"),
    ("How many characters are in 'hello world'?", "11"),
    ("How many characters are in 'hello world', excluding spaces?", "10"),
    ("How many characters are in 'naïve 👨‍👩‍👧'?", "7"),
    ("How many unique letters are in 'mississippi'?", "4"),
    ("How many capital letters are in 'Hello World'?", "2"),
    ("I'd like to know how many letters there are in 'hello'. Answer with just the number.", "5"),
    ("How many letters are in the longest word of the sentence 'I love programming'?", "11"),
    ("How many more letters does 'elephant' have than 'cat'?", "5"),
    ("Which letter appears most often in 'banana'?", "a"),
]

PARTS = [
    ("What is the third letter of elephant?", "e"),
    ("What is the last letter of 'hello'?", "o"),
    ("What is the second-to-last letter of 'python'?", "o"),
    ("What is the middle letter of 'apple'?", "p"),
    ("What letter does Tuesday start with?", "T"),
    ("What is the second word of 'to be or not to be'?", "be"),
    ("What is the last letter of the third word of 'the quick brown fox'?", "n"),
    ("What are the first 3 letters of 'python'?", "pyt"),
    ("What is the position of 'n' in 'banana'?", "3"),
    ("Take the first letter of each word in 'As Soon As Possible'", "ASAP"),
    ("What is the acronym for World Health Organization?", "WHO"),
    ("What is the 17th letter of the alphabet?", "Q"),
    ("What position in the alphabet is M?", "13"),
    ("What letter comes after M in the alphabet?", "N"),
    ("What is the sum of the letter values of 'cab' if A=1?", "6"),
    ("What is the sum of the digits of 12345?", "15"),
]

JUDGEMENTS = [
    ("Is 'racecar' a palindrome?", "Yes"),
    ("Is 'A man, a plan, a canal: Panama' a palindrome?", "Yes"),
    ("Consider the word 'hello'. Is it a palindrome?", "No"),
    ("Are 'listen' and 'silent' anagrams?", "Yes"),
    ("Check whether 'evil' and 'vile' are anagrams.", "Yes"),
    ("Is apple an anagram of paper?", "No"),
    ("Does 'hello' start with the letter h?", "Yes"),
    ("Does 'banana' end with 'na'?", "Yes"),
    ("Does elephant contain the letter z?", "No"),
    ("Is y a vowel?", "No"),
    ("Is 'The quick brown fox jumps over the lazy dog' a pangram?", "Yes"),
    ("Which is the longest word: apple, banana or kiwi?", "banana"),
    ("Of the words apple, fig and banana, which is the shortest?", "fig"),
    ("Which word has more vowels, 'queue' or 'rhythm'?", "queue"),
    ("Which comes first alphabetically, banana or apple?", "apple"),
    ("Which of these words comes last in the dictionary: cat, dog, bird?", "dog"),
    ("Does apple come before banana alphabetically?", "Yes"),
    ("Is 'elephant' longer than 'mouse'?", "Yes"),
]

TRANSFORMS = [
    ("Spell Tuesday backwards", "yadseuT"),
    ("What is 'hello' reversed?", "olleh"),
    ("Reverse the word “café”", "éfac"),
    ("Reverse 'e\u0301a👍🏽'", "👍🏽aé"),
    ("Take the word 'stressed' and reverse it.", "desserts"),
    ("Reverse the words in the sentence 'the cat sat'.", "sat cat the"),
    ("Reverse the letters in 'stop'.", "pots"),
    ("Write the letters of 'dog' in reverse order", "god"),
    ("Sort these words alphabetically: pear, apple, fig", "apple, fig, pear"),
    ("Put these words in reverse alphabetical order: zebra, apple, mango", "zebra, mango, apple"),
    ("Given the list: dog, ant, cat. Sort it alphabetically.", "ant, cat, dog"),
    ("Sort the letters of 'zebra' alphabetically", "aberz"),
    ("Sort 10, 9, 100 in ascending order", "9, 10, 100"),
    ("Alphabetically sort the words: delta, alpha, charlie", "alpha, charlie, delta"),
    ("Sort 'élan', 'zoo', 'eel' alphabetically", "eel, élan, zoo"),
    ("Convert 'hello world' to uppercase", "HELLO WORLD"),
    ("Uppercase 'straße'", "STRASSE"),
    ("What is 'the red house' in title case?", "The Red House"),
    ("Remove all the vowels from 'education'", "dctn"),
    ("What is 'banana' without the letter a?", "bnn"),
    ("If you remove the first letter from 'stone', what word do you get?", "tone"),
    ("Replace every a with o in banana", "bonono"),
    ("In 'hello', replace 'l' with 'r'", "herro"),
    ("Repeat 'ha' 3 times", "hahaha"),
    ("Concatenate 'sun' and 'flower'", "sunflower"),
    ("Join 'a', 'b' and 'c' with a hyphen", "a-b-c"),
    ("Convert 'Hello World' to snake_case", "hello_world"),
    ("Translate 'string' to pig latin", "ingstray"),
]

CODES = [
    ("Encode HELLO with a Caesar shift of 3", "KHOOR"),
    ("Decode KHOOR with a Caesar cipher shift of 3", "HELLO"),
    ("Encode 'xyz' with a Caesar cipher, shifting 3 to the right", "abc"),
    ("Shift 'abc' by 1 to the left", "zab"),
    ("Use a Caesar shift of 4 to encode 'test'", "xiwx"),
    ("What is hello in ROT13?", "uryyb"),
    ("Decode 'uryyb' using ROT13", "hello"),
    ("Encode hello with the Atbash cipher", "svool"),
    ("Write SOS in Morse code", "... --- ..."),
    ("What is the Morse code for SOS?", "... --- ..."),
    ("Decode the Morse code ... --- ...", "SOS"),
    ("What does '.... ..' mean in Morse code?", "HI"),
    ("What is the ASCII code of A?", "65"),
    ("Which character has ASCII code 97?", "a"),
    ("What is 'A' in binary?", "01000001"),
    ("Decode 01001000 01101001 from binary", "Hi"),
    ("What is 2024 in Roman numerals?", "MMXXIV"),
    ("What number is XIV?", "14"),
    ("Convert MCMXCIV to Arabic numerals", "1994"),
    ("How is 42 written in words?", "forty-two"),
    ("Write 1,234 in words", "one thousand two hundred and thirty-four"),
    ("Write 21st in words", "twenty-first"),
    ("Write one hundred and five in digits", "105"),
]

OUTSIDE = [
    "",
    "  \n ",
    "hi",
    "Hello there!",
    "?!",
    "What's the capital of France?",
    "Who wrote Hamlet?",
    "How many words does Hamlet have?",
    "How many characters are in Hamlet?",
    "How many letters are in the capital of France?",
    "How many letters does the postman deliver?",
    "How many letters did Van Gogh write to Theo?",
    "How many letters does the Greek alphabet have?",
    "What is the longest word in the English language?",
    "What is the most common letter in English?",
    "What is the longest river in Africa?",
    "Which is longer, 1 mile or 1500 m?",
    "Who invented Morse code?",
    "What is reverse osmosis?",
    "What's the history of the Caesar cipher?",
    "What is 17 times 23?",
    "Solve x+2=5",
    "Convert 5 km to miles",
    "How many days are in March?",
    "What day comes after Tuesday?",
    "What is the last word of the Bible?",
    "Sort my emails alphabetically",
    "Translate hello to French",
    "What does NASA stand for?",
    "How many syllables does banana have?",
    "Write a poem about love",
    "How many people live in Spain?",
    "How many legs does a spider have?",
    "Does water contain hydrogen?",
    "What do you get when you combine red and blue?",
    "How many m's are in 3 kilometres?",
]


@pytest.mark.parametrize(("question", "value"), COUNTS + PARTS + JUDGEMENTS + TRANSFORMS + CODES)
def test_known_answers(question: str, value: str) -> None:
    found = SKILL.solve(question)
    assert found is not None
    assert found.value == value
    assert found.working


@pytest.mark.parametrize("question", OUTSIDE)
def test_outside_is_declined(question: str) -> None:
    assert SKILL.solve(question) is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (99, "ninety-nine"),
        (101, "one hundred and one"),
        (1_000_001, "one million and one"),
        (-7, "minus seven"),
    ],
)
def test_cardinals(number: int, text: str) -> None:
    assert cardinal(number) == text


@given(st.integers(0, 10**14))
def test_numbers_in_words_read_back(number: int) -> None:
    assert integer(cardinal(number)) == number


@given(st.integers(1, 99))
def test_ordinals_read_back(number: int) -> None:
    assert place(ordinal(number)) == number


@given(st.integers(1, 3999))
def test_roman_numerals_read_back(number: int) -> None:
    numeral = ciphers.to_roman(number)
    assert numeral is not None
    assert ciphers.from_roman(numeral) == number


@pytest.mark.parametrize("text", ["IIII", "VX", "IC", "MMMM", "", "ABC", "I" * 50])
def test_malformed_roman_numerals_are_refused(text: str) -> None:
    assert ciphers.from_roman(text) is None


@given(st.text(max_size=60), st.integers(-100, 100))
def test_ciphers_invert(text: str, shift: int) -> None:
    assert ciphers.caesar(ciphers.caesar(text, shift), -shift) == text
    assert ciphers.atbash(ciphers.atbash(text)) == text


@given(st.text(alphabet="ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ", min_size=1, max_size=40))
def test_morse_inverts(text: str) -> None:
    code = ciphers.to_morse(text)
    if text.strip():
        assert code is not None
        assert ciphers.from_morse(code) == " ".join(text.split())
    else:
        assert code is None


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=20), st.sampled_from("aeimnst"))
def test_counts_agree_with_python(word: str, letter: str) -> None:
    counted = SKILL.solve(f"How many {letter}'s are in '{word}'?")
    letters = SKILL.solve(f'How many letters does "{word}" have?')
    backwards = SKILL.solve(f"Spell '{word}' backwards")
    assert counted is not None
    assert letters is not None
    assert backwards is not None
    assert (counted.value, letters.value, backwards.value) == (str(word.count(letter)), str(len(word)), word[::-1])


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_solved_or_declined(text: str) -> None:
    found = SKILL.solve(text)
    assert found is None or (found.value and found.working)


VOCABULARY = (
    "How many letters words vowels are in the word 'x' \"y z\" reverse sort alphabetically a b, c and d first last "
    "3 9999999 times repeat shift by Caesar decode Morse ... -- 0101 ROT13 replace with remove from which longest é "
    "👍 : . of it XIV in"
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(VOCABULARY.split()), max_size=16))
def test_shuffled_vocabulary_never_raises(words: list[str]) -> None:
    SKILL.solve(" ".join(words))


@pytest.mark.timeout(20)
def test_noise_is_bounded() -> None:
    rng = random.Random(7)
    parts = [
        "how many a's in ",
        "reverse ",
        "the letters of ",
        "'",
        '"',
        "and ",
        "a, ",
        ": ",
        "... ",
        "0101 ",
        "shift a by ",
    ]
    parts += ["in a, how ", "it ", "the the ", "what do you get if you ", "replace a ", "三", "\0", "\ue000"]
    for part in parts:
        for size in (390, 3_990, 10_000):
            SKILL.solve(part * (size // len(part)))
    for _ in range(50):
        SKILL.solve("".join(rng.choice(parts) for _ in range(200)))


def test_threads_share_one_skill() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(Lexical().solve, [question for question, _ in CODES] * 3))
    assert [f.value for f in found if f] == [value for _, value in CODES] * 3
