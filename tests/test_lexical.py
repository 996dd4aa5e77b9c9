"""The lexical skill against references worked out by hand, what it must decline, and bounded noise."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_core.agents.skills import ciphers
from trinity_core.agents.skills.lexical import Lexical
from trinity_core.agents.skills.wording import cardinal, integer, ordinal, place

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

# The same questions as people also put them: indirectly, as instructions, with fillers, as small stories.
WORDINGS = [
    ("At which position in the alphabet is the letter 'K'?", "11"),
    ("The letter D is number what in the alphabet?", "4"),
    ("How many letters into the alphabet is J?", "10"),
    ("Which position does M have in the alphabet?", "13"),
    ("Give the position of the letter W in the alphabet.", "23"),
    ("What place does the letter b hold in the alphabet?", "2"),
    ("What number letter is Q in the alphabet?", "17"),
    ("Which number in the alphabet is F?", "6"),
    ("Tell me the alphabet position of 'H'.", "8"),
    ("Which letter of the alphabet is Y? Give the number.", "25"),
    ("In the alphabet, what position is C?", "3"),
    ("If A is 1 and B is 2, what number is G?", "7"),
    ("Where in the alphabet does the letter R come?", "18"),
    ("On which position in the alphabet does L stand?", "12"),
    ("What letter of the alphabet is at position 12?", "L"),
    ("Which letter is number 20 in the alphabet?", "T"),
    ("What is the 5th letter of the alphabet?", "E"),
    ("Name the letter at position 9 in the alphabet.", "I"),
    ("Which letter comes 3rd in the alphabet?", "C"),
    ("What letter is in position 14 of the alphabet?", "N"),
    ("Give me the letter of the alphabet at position 1", "A"),
    ("Name letter 26 of the alphabet.", "Z"),
    ("What is the letter at position 2 in 'grape'?", "r"),
    ("Name the letter of 'winter' at position 4.", "t"),
    ("Which letter is at position 3 of 'cloud'?", "o"),
    ("Which letter of 'cloud' is at position 5?", "d"),
    ("Give the letter in position 1 of the word 'cloud'", "c"),
    ("Find the letter in the third position of 'planet'.", "a"),
    ("What letter does 'planet' have at position 2?", "l"),
    ("Count the letters of 7 written as a word.", "5"),
    ("How many letters does 12 have when it is spelled out?", "6"),
    ("How many letters are there in the English word for 12?", "6"),
    ("Count the letters in the number 30 written out in words.", "6"),
    ("How many letters does it take to spell 9?", "4"),
    ("How many letters do you need to write 15 in words?", "7"),
    ("Spell out 4 as a word.", "four"),
    ("Count the letters of 'four'.", "4"),
    ("What is the alphabetical order of these words: pear, apple, fig?", "apple, fig, pear"),
    ("Put these words into alphabetical order: pear, apple, fig.", "apple, fig, pear"),
    ("Sort pear, apple and fig from A to Z.", "apple, fig, pear"),
    ("List these words alphabetically: pear, apple, fig.", "apple, fig, pear"),
    ("Arrange the words pear, apple, fig in alphabetical order, separated by commas.", "apple, fig, pear"),
    ("How would the words pear, apple, fig be sorted alphabetically?", "apple, fig, pear"),
    ("Write the letters of bread in alphabetical order, without spaces.", "abder"),
    ("Sort the letters of 'bread' alphabetically with no spaces.", "abder"),
    ("Put the letters of the word horse in alphabetical order.", "ehors"),
    ("What do you get when you sort the letters of 'horse' alphabetically?", "ehors"),
    ("Arrange the letters in 'horse' from A to Z.", "ehors"),
    ("Give me the letters of 'horse' in alphabetical order as one word.", "ehors"),
    ("Pick the longest word from plum, banana, kiwi.", "banana"),
    ("Which of these words is the longest: plum, banana, kiwi?", "banana"),
    ("Choose the shortest word: plums, banana, fig.", "fig"),
    ("Of the words plum, banana and kiwi, which one is longest?", "banana"),
    ("Tell me the longest of these words: plum, banana, kiwi.", "banana"),
    ("Among plums, banana and fig, which word is the shortest?", "fig"),
    ("Find the longest word among plum, banana, kiwi.", "banana"),
    ("Which word has the most letters: plum, banana or kiwi?", "banana"),
    ("Give me the word 'cotton' without vowels.", "cttn"),
    ("Delete the vowels from 'cotton'.", "cttn"),
    ("What's left of 'cotton' when you take out the vowels?", "cttn"),
    ("Leave out all vowels in 'cotton'.", "cttn"),
    ("Spell 'cotton' without its vowels.", "cttn"),
    ("Write the word cotton, leaving out the vowels.", "cttn"),
    ("If you remove all vowels from 'cotton', what is left?", "cttn"),
    ("In the word 'pepper', change each p to b.", "bebber"),
    ("Replace every p in 'pepper' with b.", "bebber"),
    ("Take 'pepper' and replace each p by b.", "bebber"),
    ("Swap all p's in 'pepper' for b's.", "bebber"),
    ("Write 'pepper' with every p replaced by b.", "bebber"),
    ("What does 'pepper' become if every p is changed to b?", "bebber"),
    ("Substitute b for p in 'pepper'.", "bebber"),
    ("What do you get if you replace each p in 'pepper' with b?", "bebber"),
    ("Use the Caesar cipher with a shift of 2 on 'cat'.", "ecv"),
    ("Encrypt 'cat' with a Caesar cipher, shift 2.", "ecv"),
    ("Apply a Caesar shift of 2 to the word cat.", "ecv"),
    ("Shift every letter of 'cat' forward by 2.", "ecv"),
    ("Encode the word 'cat' using a Caesar shift of 2.", "ecv"),
    ("What is 'cat' in a Caesar cipher with shift 2?", "ecv"),
    ("Move each letter of 'cat' two places forward in the alphabet.", "ecv"),
    ("Caesar-encrypt 'cat' by 2", "ecv"),
    ("With a Caesar shift of 2, what does 'cat' become?", "ecv"),
    ("Give me the word count of 'the old oak tree'.", "4"),
    ("Say, how many words does 'the old oak tree' contain?", "4"),
    ("Count the words: the old oak tree", "4"),
    ("What is the number of words in 'the old oak tree'?", "4"),
    ("How many words can you count in 'the old oak tree'?", "4"),
    ("Tell me how many words there are in 'the old oak tree'.", "4"),
    ("Tell me how many vowels 'window' has.", "2"),
    ("Count the vowels in guitar.", "3"),
    ("I'd like to know how many e's are in 'cheese'.", "3"),
    ("Tell me how often the letter e appears in 'cheese'.", "3"),
    ("Find the number of times the letter e occurs in 'cheese'.", "3"),
    ("How many times is the letter e used in 'cheese'?", "3"),
    ("What's the number of consonants in 'stone'?", "3"),
    ("Is 'level' a palindrome, yes or no?", "Yes"),
    ("Tell me whether 'level' is a palindrome.", "Yes"),
    ("Does 'radar' read the same backwards? Answer yes or no.", "Yes"),
    ("Can you reverse the word 'lamp'?", "pmal"),
    ("Write lamp backwards.", "pmal"),
    ("Spell the word lamp in reverse.", "pmal"),
    ("Give the last letter of 'lamp'.", "p"),
    ("What's the last letter in 'lamp'?", "p"),
    ("Tell me the third letter of 'lamp'", "m"),
    ("Which letter does the word lamp end with?", "p"),
    ("Name the first letter of the word 'lamp'.", "l"),
    ("What is lamp in capital letters?", "LAMP"),
    ("Write 19 in Roman numerals.", "XIX"),
    ("Convert 44 to Roman numerals", "XLIV"),
    ("What is 9 as a Roman numeral?", "IX"),
    ("Tell me the Roman numeral for 14.", "XIV"),
    ("Give 14 as a Roman numeral", "XIV"),
    ("Turn the word 'planet' around.", "tenalp"),
    ("What is 'planet' backwards?", "tenalp"),
    ("What word do you get if you read 'planet' from right to left?", "tenalp"),
    ("Flip the letters of 'planet'.", "tenalp"),
    ("What does 'planet' look like backwards?", "tenalp"),
    ("If you spell 'planet' backwards, what do you get?", "tenalp"),
    ("Give the letters of 'planet' in reverse order.", "tenalp"),
    ("How long is the word 'planet'?", "6"),
    ("What's the length of the word 'planet'?", "6"),
    ("Count how many letters 'planet' has.", "6"),
    ("Give the number of letters in planet.", "6"),
    ("How many letters make up the word 'planet'?", "6"),
    ("How many letters long is 'planet'?", "6"),
    ("Of how many letters does 'planet' consist?", "6"),
    ("How many of the letters in 'planet' are vowels?", "2"),
    ("Say how many vowels are in the word planet.", "2"),
    ("In 'planet', how many vowels are there?", "2"),
    ("How many letters of 'planet' are consonants?", "4"),
    ("Count all a's in 'banana'.", "3"),
    ("How many times can you find the letter a in 'banana'?", "3"),
    ("What is the count of the letter a in 'banana'?", "3"),
    ("The letter a occurs how many times in 'banana'?", "3"),
    ("In 'banana', how often do you see an a?", "3"),
    ("Tell me the number of a's in 'banana'.", "3"),
    ("Which letter comes third in 'planet'?", "a"),
    ("What's letter number 3 of 'planet'?", "a"),
    ("Tell me the 3rd letter in planet.", "a"),
    ("What is the third letter in the word planet?", "a"),
    ("The third letter of 'planet' is what?", "a"),
    ("In the word planet, which letter is third?", "a"),
    ("What letter stands in third place in 'planet'?", "a"),
    ("Which letter does 'planet' start with?", "p"),
    ("With which letter does 'planet' begin?", "p"),
    ("What letter is at the end of 'planet'?", "t"),
    ("'planet' ends with which letter?", "t"),
    ("Say the final letter of 'planet'.", "t"),
    ("Which letter is last in 'planet'?", "t"),
    ("Alphabetize: pear, apple, fig", "apple, fig, pear"),
    ("Put pear, apple, fig in alphabetical order.", "apple, fig, pear"),
    ("In which alphabetical order do pear, apple, fig come?", "apple, fig, pear"),
    ("Write pear, apple and fig in alphabetical order.", "apple, fig, pear"),
    ("Here are some words: pear, apple, fig. Sort them alphabetically.", "apple, fig, pear"),
    ("Bring these words into alphabetical order: pear, apple, fig", "apple, fig, pear"),
    ("What are the letters of 'bread' in alphabetical order?", "abder"),
    ("Rearrange the letters of 'bread' alphabetically.", "abder"),
    ("If you sort the letters in 'bread' alphabetically, what do you get?", "abder"),
    ("Put the letters of bread in order from a to z", "abder"),
    ("List the letters of 'bread' in alphabetical order without commas.", "abder"),
    ("Which is the longest word: plum, banana, kiwi?", "banana"),
    ("Out of plum, banana and kiwi, which is the longest word?", "banana"),
    ("From the words plum, banana, kiwi, name the longest.", "banana"),
    ("plum, banana, kiwi: which word is the longest?", "banana"),
    ("Name the longest word in the list plum, banana, kiwi.", "banana"),
    ("Which of plum, banana and kiwi is the longest word?", "banana"),
    ("Say which word is longest: plum, banana or kiwi.", "banana"),
    ("Identify the longest word among these: plum, banana, kiwi", "banana"),
    ("Take all vowels out of 'planet'.", "plnt"),
    ("What remains of 'planet' without its vowels?", "plnt"),
    ("If all vowels are removed from 'planet', what remains?", "plnt"),
    ("Strip the vowels from planet.", "plnt"),
    ("Erase every vowel in the word planet", "plnt"),
    ("What is 'planet' with the vowels removed?", "plnt"),
    ("Write planet with all vowels left out.", "plnt"),
    ("What do you get when you delete the vowels in 'planet'?", "plnt"),
    ("Replace 'l' by 'r' in 'planet'.", "pranet"),
    ("What's 'planet' with every l replaced by r?", "pranet"),
    ("If you change each l in 'planet' to r, what do you get?", "pranet"),
    ("In 'planet', replace l with r.", "pranet"),
    ("Exchange every l in 'planet' for r.", "pranet"),
    ("Put an r in place of every l in 'planet'.", "pranet"),
    ("Rewrite 'planet' using r instead of l.", "pranet"),
    ("What number does the letter H have in the alphabet?", "8"),
    ("Which place in the alphabet does H take?", "8"),
    ("H is which letter of the alphabet?", "8"),
    ("What is the alphabetical position of the letter H?", "8"),
    ("How far into the alphabet is the letter H?", "8"),
    ("Counting from A = 1, which number is the letter H?", "8"),
    ("Find the place of the letter H in the alphabet.", "8"),
    ("Shift the letters of 'cat' forward by 2.", "ecv"),
    ("Caesar shift 'cat' by 2.", "ecv"),
    ("Encode 'cat' by shifting each letter 2 places forward.", "ecv"),
    ("With a Caesar cipher of shift 2, encrypt 'cat'.", "ecv"),
    ("Replace each letter of 'cat' with the letter 2 places later in the alphabet.", "ecv"),
    ("Write 'cat' in a Caesar cipher with a shift of 2.", "ecv"),
    ("Rotate each letter in 'cat' by 2 places.", "ecv"),
    ("How many words does the sentence 'the old oak' have?", "3"),
    ("Count the number of words in 'the old oak'.", "3"),
    ("'the old oak' has how many words?", "3"),
    ("What's the word count of 'the old oak'?", "3"),
    ("In 'the old oak', how many words are there?", "3"),
    ("How many words make up the phrase 'the old oak'?", "3"),
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
    "At which position did the runner finish?",
    "Which number is France in the world ranking?",
    "What letter did Paul write in prison?",
    "Give me the word on the street",
    "Pick the longest river from Nile, Amazon",
    "Use the phone with a friend on Monday",
    "What place does Spain have in the league?",
    "Which letter of the law is broken?",
    "What is the length of the Nile?",
    "How many letters does it take to reach France?",
    "Change each tyre on the car.",
    "In the capital of France, change each light.",
    "Put the dog out without a lead",
    "Name the letter Paul wrote to Rome",
    "Where in the world is Wales?",
    "What is the order of the planets?",
    "Name the longest river",
    "What is the word of the year?",
    "How many words does the Bible contain?",
    "What is the length of February?",
    "What's the number of people in Spain?",
    "Replace the last two letters of 'planet' by m.",
    "Write 'planet' without the letters a and e.",
    "In 'banana', replace the first a with o.",
    "What number is x?",
]


@pytest.mark.parametrize(("question", "value"), COUNTS + PARTS + JUDGEMENTS + TRANSFORMS + CODES + WORDINGS)
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
