"""Built-in questions about letters and words. References are worked out from the words with string methods."""

from __future__ import annotations

from random import Random

from trinity_core.tasks.operation import WORDS, Drawn, Operation


def _word(rng: Random, shortest: int = 5) -> str:
    return rng.choice([word for word in WORDS if len(word) >= shortest])


def _reverse(rng: Random) -> Drawn:
    word = _word(rng)
    return {"w": word}, word[::-1]


def _length(rng: Random) -> Drawn:
    word = _word(rng, 6)
    return {"w": word}, str(len(word))


def _vowels(rng: Random) -> Drawn:
    word = _word(rng)
    return {"w": word}, str(sum(letter in "aeiou" for letter in word))


def _occurrences(rng: Random) -> Drawn:
    word = rng.choice([word for word in WORDS if len(set(word)) < len(word)])
    letter = rng.choice(sorted({c for c in word if word.count(c) > 1}))
    return {"w": word, "c": letter}, str(word.count(letter))


def _place(rng: Random) -> Drawn:
    word = _word(rng, 6)
    index = rng.randint(2, 5)
    return {"w": word, "n": ("second", "third", "fourth", "fifth")[index - 2]}, word[index - 1]


def _ends(rng: Random) -> Drawn:
    word = _word(rng)
    which = rng.choice(("first", "last"))
    return {"w": word, "n": which}, word[0] if which == "first" else word[-1]


def _sorted_words(rng: Random) -> Drawn:
    words = rng.sample(WORDS, 4)
    return {"w": ", ".join(words)}, ", ".join(sorted(words))


def _sorted_letters(rng: Random) -> Drawn:
    word = rng.choice([word for word in WORDS if 5 <= len(word) <= 7])
    return {"w": word}, "".join(sorted(word))


def _longest(rng: Random) -> Drawn:
    long = _word(rng, 8)
    words = [*rng.sample([word for word in WORDS if len(word) < 7], 3), long]
    rng.shuffle(words)
    a, b, c, d = words
    return {"a": a, "b": b, "c": c, "d": d}, long


def _no_vowels(rng: Random) -> Drawn:
    word = _word(rng, 6)
    return {"w": word}, "".join(letter for letter in word if letter not in "aeiou")


def _replaced(rng: Random) -> Drawn:
    word = _word(rng)
    old = rng.choice(sorted(set(word)))
    new = rng.choice([letter for letter in "abcdefghiklmnoprstuw" if letter not in word])
    return {"w": word, "a": old, "b": new}, word.replace(old, new)


def _alphabet(rng: Random) -> Drawn:
    index = rng.randint(3, 25)
    return {"c": chr(ord("A") + index - 1)}, str(index)


def _shifted(rng: Random) -> Drawn:
    word, shift = rng.choice([word for word in WORDS if len(word) <= 6]), rng.randint(1, 6)
    return {"w": word, "n": shift}, "".join(chr((ord(c) - 97 + shift) % 26 + 97) for c in word)


def _word_count(rng: Random) -> Drawn:
    words = rng.sample(WORDS, rng.randint(5, 9))
    return {"w": "the " + " ".join(words)}, str(len(words) + 1)


LETTERS: tuple[Operation, ...] = (
    Operation(
        "reverse",
        _reverse,
        (
            "Spell '{w}' backwards.",
            "What is '{w}' spelled backwards?",
            "Reverse the word '{w}'.",
            "How do you write the word {w} backwards?",
            "What do you get when you reverse the letters of '{w}'?",
            'Write "{w}" in reverse.',
            "Can you spell the word {w} backwards, please?",
            "What's the reverse of the word '{w}'?",
        ),
        "exact",
    ),
    Operation(
        "length",
        _length,
        (
            "How many letters are in the word '{w}'?",
            "How many letters does the word {w} have?",
            "Count the letters in '{w}'.",
            'What\'s the number of letters in the word "{w}"?',
            "How long is the word '{w}' in letters?",
            "Tell me how many letters there are in {w}.",
            "The word '{w}' has how many letters?",
            "How many characters does the word '{w}' contain?",
        ),
    ),
    Operation(
        "vowels",
        _vowels,
        (
            "How many vowels are in the word '{w}'?",
            "How many vowels does '{w}' have?",
            "Count the vowels in {w}.",
            'What\'s the number of vowels in "{w}"?',
            "Tell me how many vowels there are in the word {w}.",
            "How many of the letters in '{w}' are vowels?",
            "Find the number of vowels in the word '{w}'.",
            "The word '{w}' contains how many vowels?",
        ),
    ),
    Operation(
        "occurrences",
        _occurrences,
        (
            "How many times does the letter '{c}' appear in '{w}'?",
            "How many {c}'s are in the word {w}?",
            "Count the letter {c} in '{w}'.",
            "How often does the letter {c} occur in the word '{w}'?",
            "What's the number of times '{c}' appears in \"{w}\"?",
            "In the word '{w}', how many times does the letter {c} occur?",
            "Tell me how many times the letter '{c}' is in {w}.",
            "How many letters '{c}' does the word '{w}' contain?",
        ),
    ),
    Operation(
        "place",
        _place,
        (
            "What is the {n} letter of the word '{w}'?",
            "What's the {n} letter in '{w}'?",
            "Which letter comes {n} in the word '{w}'?",
            'Give me the {n} letter of "{w}".',
            "Name the {n} letter of the word {w}.",
            "Tell me the {n} letter in the word '{w}'.",
            "Which is the {n} letter of '{w}'?",
            "Find the {n} letter in {w}.",
        ),
        "exact",
    ),
    Operation(
        "ends",
        _ends,
        (
            "What is the {n} letter of the word '{w}'?",
            "What's the {n} letter in '{w}'?",
            'Give the {n} letter of "{w}".',
            "Which letter does '{w}' have {n}? Name the {n} letter.",
            "Name the {n} letter of the word {w}.",
            "Tell me the {n} letter in the word '{w}'.",
            "Which letter is the {n} one in '{w}'?",
            "Can you give me the {n} letter of '{w}'?",
        ),
        "exact",
    ),
    Operation(
        "sort_words",
        _sorted_words,
        (
            "Sort these words alphabetically: {w}",
            "Put these words in alphabetical order: {w}.",
            "Arrange the following words alphabetically: {w}",
            "Can you sort {w} in alphabetical order?",
            "List these words in alphabetical order: {w}.",
            "Alphabetize: {w}",
            "Order the words {w} from A to Z.",
            "What is the alphabetical order of these words: {w}?",
        ),
        "exact",
    ),
    Operation(
        "sort_letters",
        _sorted_letters,
        (
            "Sort the letters of the word '{w}' alphabetically.",
            "Put the letters of '{w}' in alphabetical order.",
            'Arrange the letters in "{w}" alphabetically.',
            "What do you get when you sort the letters of '{w}' from A to Z?",
            "Write the letters of {w} in alphabetical order, without spaces.",
            "Alphabetize the letters in the word '{w}'.",
            "Order the letters of the word {w} alphabetically.",
            "If I put the letters of '{w}' in alphabetical order, what do I get?",
        ),
        "exact",
    ),
    Operation(
        "longest",
        _longest,
        (
            "Which of these words is the longest: {a}, {b}, {c}, {d}?",
            "What's the longest word in this list: {a}, {b}, {c}, {d}?",
            "Find the longest word: {a}, {b}, {c}, {d}.",
            "Among {a}, {b}, {c} and {d}, which word is longest?",
            "Which word has the most letters: {a}, {b}, {c} or {d}?",
            "Pick the longest word from {a}, {b}, {c}, {d}.",
            "Which of the words {a}, {b}, {c} and {d} is longest?",
            "Tell me the longest of these words: {a}, {b}, {c}, {d}.",
        ),
        "contains",
    ),
    Operation(
        "no_vowels",
        _no_vowels,
        (
            "Remove all vowels from the word '{w}'.",
            "What is left of '{w}' if you remove the vowels?",
            'Delete the vowels from "{w}".',
            "Write '{w}' without its vowels.",
            "What do you get if you take the vowels out of the word {w}?",
            "Drop every vowel from '{w}'.",
            "Give me the word '{w}' without vowels.",
            "Strip the vowels from the word {w}.",
        ),
        "exact",
    ),
    Operation(
        "replace",
        _replaced,
        (
            "Replace every '{a}' with '{b}' in the word '{w}'.",
            "In the word '{w}', change each {a} to {b}.",
            "What does '{w}' become if you replace {a} with {b}?",
            'Replace the letter {a} by {b} in "{w}".',
            "Substitute '{b}' for '{a}' in the word '{w}'.",
            "Take the word '{w}' and replace every {a} with {b}.",
            "If all the {a}'s in '{w}' are replaced with {b}'s, what do you get?",
            "Swap each '{a}' in '{w}' for '{b}'.",
        ),
        "exact",
    ),
    Operation(
        "alphabet",
        _alphabet,
        (
            "What position does the letter {c} have in the alphabet?",
            "Which number is {c} in the alphabet?",
            "What's the position of {c} in the alphabet?",
            "Where does {c} come in the alphabet, as a number?",
            "At which position in the alphabet is the letter '{c}'?",
            "Give the alphabet position of the letter {c}.",
            "The letter {c} is number what in the alphabet?",
            "How many letters into the alphabet is {c}? Give its position in the alphabet.",
        ),
    ),
    Operation(
        "caesar",
        _shifted,
        (
            "Shift each letter of '{w}' forward by {n} in the alphabet.",
            "Encode '{w}' with a Caesar cipher with a shift of {n}.",
            "Apply a Caesar shift of {n} to the word '{w}'.",
            "What is '{w}' in a Caesar cipher with shift {n}?",
            'Encrypt "{w}" using a Caesar cipher with key {n}.',
            "Move every letter of the word '{w}' {n} places forward in the alphabet.",
            "Use the Caesar cipher with a shift of {n} on '{w}'.",
            "What do you get if you shift every letter of '{w}' by {n} in the alphabet?",
        ),
        "exact",
    ),
    Operation(
        "word_count",
        _word_count,
        (
            "How many words are in '{w}'?",
            'Count the words in "{w}".',
            "How many words does the phrase '{w}' have?",
            'What\'s the number of words in "{w}"?',
            "Tell me how many words this contains: '{w}'",
            "Give me the word count of '{w}'.",
            "Say, how many words does '{w}' contain?",
            "How many words are there in the text '{w}'?",
        ),
    ),
)
