"""General knowledge questions of the built-in set, written for it: tables of facts and the ways to ask for them.

Each `Kind` holds facts (what is asked about, and the answer; further right answers after a bar) and wordings. Every
fact makes one question, with the wordings taken in turn.

How the kinds were chosen: some 480 questions of about 35 kinds were put to the embedded language model once, in the
plain Worker prompt with greedy decoding, and the kinds on which it was right in more than half were kept, each with
the first eight facts of its table, whatever their outcome. Left out were colours, planets, animal sounds, animal
young, classes of animals, authors, superlatives, where dishes come from, past tenses, plurals, translations, atomic
numbers, and options to be picked by a letter. Counts were kept in the one wording that passed ("How many ..."), and
options where the question names them in words. No split was looked at.
So the family is easier for that model than general knowledge at large; it is there to show coordination, not to rank
language models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from trinity_core.tasks.operation import Draft


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of fact. `facts` are "subject: answer|another right answer", one a line.

    With the grader "choice", `{o}` in a wording becomes three options, two of them answers to other facts.
    """

    name: str
    wordings: tuple[str, ...]
    facts: str
    grader: str = "contains"

    def pairs(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Subjects with their right answers, the preferred one first."""
        rows = [line.strip().partition(": ") for line in self.facts.strip().splitlines()]
        return tuple((subject, tuple(answers.split("|"))) for subject, _, answers in rows)

    def drafts(self) -> Iterator[Draft]:
        pairs = self.pairs()
        for index, (subject, answers) in enumerate(pairs):
            wording = self.wordings[index % len(self.wordings)]
            if self.grader == "choice":
                others = [right[0] for other, right in pairs if other != subject]
                yield _choice(self.name, wording, subject, answers[0], others)
                continue
            question = wording.format(subject)
            params = {"accept": list(answers[1:])} if len(answers) > 1 else {}
            yield Draft(question[0].upper() + question[1:], answers[0], self.grader, (self.name,), params)


def _choice(name: str, wording: str, subject: str, answer: str, others: list[str]) -> Draft:
    rng = Random(f"{name}/{subject}")
    options = [answer, *rng.sample(others, 2)]
    rng.shuffle(options)
    choices = dict(zip("ABC", options, strict=True))
    letter = next(letter for letter, option in choices.items() if option == answer)
    question = wording.format(subject, o=f"{options[0]}, {options[1]} or {options[2]}")
    return Draft(question, letter, "choice", (name,), {"choices": choices})


KINDS: tuple[Kind, ...] = (
    Kind(
        "capital",
        (
            "What is the capital of {}?",
            "What's the capital city of {}?",
            "Which city is the capital of {}?",
            "Can you tell me the capital of {}?",
            "I forgot: what is {}'s capital?",
            "Tell me the capital city of {}, please.",
            "Name the capital of {}.",
            "{} has which city as its capital?",
        ),
        """
        France: Paris
        Italy: Rome
        Spain: Madrid
        Germany: Berlin
        Japan: Tokyo
        China: Beijing
        Russia: Moscow
        Egypt: Cairo
        """,
    ),
    Kind(
        "country",
        (
            "Which country is {} the capital of?",
            "{} is the capital of which country?",
            "In which country is the city of {}?",
            "What country would I be in if I were in {}?",
            "Name the country whose capital is {}.",
        ),
        """
        Paris: France
        Rome: Italy
        Tokyo: Japan
        Madrid: Spain
        Cairo: Egypt
        Athens: Greece
        London: England|United Kingdom|UK|Great Britain|Britain
        Berlin: Germany
        """,
    ),
    Kind(
        "continent",
        (
            "Which continent is {} on?",
            "What continent is {} part of?",
            "{} belongs to which continent?",
            "On what continent would you find {}?",
        ),
        """
        Brazil: South America|South American
        Egypt: Africa|African
        France: Europe|European
        China: Asia|Asian
        Canada: North America|North American
        Kenya: Africa|African
        Germany: Europe|European
        India: Asia|Asian
        """,
    ),
    Kind(
        "language",
        (
            "What language do most people speak in {}?",
            "Which language is spoken in {}?",
            "What's the main language of {}?",
            "If I move to {}, what language should I learn?",
            "Name the official language of {}.",
        ),
        """
        Brazil: Portuguese
        Mexico: Spanish
        France: French
        Germany: German
        Japan: Japanese
        Russia: Russian
        Egypt: Arabic
        Australia: English
        """,
    ),
    Kind(
        "currency",
        (
            "What is the currency of {}?",
            "Which currency is used in {}?",
            "What's the currency of {} called?",
            "What currency do people use in {}?",
        ),
        """
        Japan: yen
        India: rupee|rupees
        the United States: dollar|dollars|USD
        Germany: euro|euros
        Russia: ruble|rouble|rubles
        Mexico: peso|pesos
        China: yuan|renminbi
        Great Britain: pound|pounds|pound sterling
        """,
    ),
    Kind(
        "opposite",
        (
            "What is the opposite of {}?",
            "Give me the opposite of '{}'.",
            "What's the antonym of {}?",
            "Which word means the opposite of {}?",
            "Name a word that is the opposite of {}.",
        ),
        """
        hot: cold
        up: down
        big: small|little|tiny
        day: night
        fast: slow
        happy: sad|unhappy
        open: closed|close|shut
        light: dark|darkness|heavy
        """,
    ),
    Kind(
        "science",
        ("{}", "Science question: {}"),
        """
        What is H2O better known as?: water
        Which gas do humans need to breathe?: oxygen
        What gas do plants take in from the air?: carbon dioxide|CO2
        What force pulls things down to the ground?: gravity
        What is frozen water called?: ice
        Which organ pumps blood through the body?: heart
        Which organ do we think with?: brain
        What part of the body do we hear with?: ear|ears
        """,
    ),
    Kind(
        "symbol",
        (
            "What is the chemical symbol for {}?",
            "Which chemical symbol does {} have?",
            "What's the symbol of {} in the periodic table?",
        ),
        """
        gold: Au
        silver: Ag
        oxygen: O
        hydrogen: H
        carbon: C
        iron: Fe
        sodium: Na
        nitrogen: N
        """,
    ),
    Kind(
        "person",
        ("{}", "History question: {}"),
        """
        Who painted the Mona Lisa?: da Vinci|Leonardo
        Who developed the theory of relativity?: Einstein
        Who was the first president of the United States?: Washington
        Who invented the telephone?: Bell
        Who discovered gravity, as the story of the apple goes?: Newton
        Who was the first person to walk on the Moon?: Armstrong
        Who came up with the theory of evolution by natural selection?: Darwin
        Who discovered penicillin?: Fleming
        """,
    ),
    Kind(
        "place",
        (
            "Where is {}?",
            "In which city or country is {}?",
            "Where in the world can I visit {}?",
        ),
        """
        the Eiffel Tower: Paris|France
        the Statue of Liberty: New York|United States|USA
        Big Ben: London|England|United Kingdom
        the Colosseum: Rome|Italy
        the Taj Mahal: India|Agra
        the Great Wall: China
        the pyramids of Giza: Egypt
        the White House: Washington
        """,
    ),
    Kind(
        "material",
        (
            "What is {} made from?",
            "What do people make {} from?",
            "What's the main ingredient of {}?",
            "Tell me what {} is made of.",
        ),
        """
        wine: grapes|grape
        bread: flour|wheat
        paper: wood|trees|pulp|wood pulp
        cheese: milk
        chocolate: cocoa|cacao|cocoa beans
        butter: milk|cream
        an omelette: eggs|egg
        ketchup: tomatoes|tomato
        """,
    ),
    Kind(
        "job",
        (
            "What do you call a person who {}?",
            "What is someone who {} called?",
            "What's the job title of a person who {}?",
        ),
        """
        teaches children at school: teacher
        flies airplanes: pilot
        puts out fires: firefighter|fireman
        bakes bread: baker
        looks after your teeth: dentist
        grows crops: farmer
        cuts hair: barber|hairdresser
        writes books: author|writer
        """,
    ),
    Kind(
        "abbreviation",
        ("What does {} stand for?", "What is {} short for?", "Tell me what the letters {} mean."),
        """
        USA: United States of America
        UK: United Kingdom
        UN: United Nations
        EU: European Union
        NASA: National Aeronautics and Space Administration
        FBI: Federal Bureau of Investigation
        CPU: central processing unit
        WHO: World Health Organization|World Health Organisation
        """,
    ),
    Kind(
        "year",
        ("In which year did {}?", "When did {}? Give the year.", "What year did {}?"),
        """
        World War II end: 1945
        the Titanic sink: 1912
        World War I begin: 1914
        the French Revolution begin: 1789
        people first walk on the Moon: 1969
        the Berlin Wall fall: 1989
        Columbus first reach America: 1492
        the Soviet Union break up: 1991
        """,
        "numeric",
    ),
    Kind(
        "count",
        ("how many {}?",),
        """
        legs does a spider have: 8
        legs does a dog have: 4
        legs does a cat have: 4
        legs does a horse have: 4
        sides does a triangle have: 3
        sides does a square have: 4
        sides does a pentagon have: 5
        sides does a hexagon have: 6
        """,
        "numeric",
    ),
    Kind(
        "which_capital",
        (
            "What is the capital of {}: {o}?",
            "Which city is the capital of {}: {o}?",
            "Is the capital of {} {o}?",
        ),
        """
        France: Paris
        Italy: Rome
        Spain: Madrid
        Germany: Berlin
        Japan: Tokyo
        China: Beijing
        Russia: Moscow
        Egypt: Cairo
        """,
        "choice",
    ),
    Kind(
        "which_language",
        ("Which language is spoken in {}: {o}?", "What do people speak in {}: {o}?"),
        """
        Brazil: Portuguese
        Mexico: Spanish
        France: French
        Germany: German
        Japan: Japanese
        Russia: Russian
        Egypt: Arabic
        Italy: Italian
        """,
        "choice",
    ),
)
