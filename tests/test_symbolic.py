"""The symbolic skill: what it must answer, what it must decline, and that no text makes it raise or run away."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trinity_core.agents.skills.formula import parse
from trinity_core.agents.skills.symbolic import Symbolic
from trinity_core.agents.skills.tokens import Unreadable
from trinity_core.agents.specialists import Skill
from trinity_core.agents.steps import split_steps

SKILL = Symbolic()

ANSWERS = [
    # plain arithmetic, in signs and in words
    ("What's 17 times 23?", "391"),
    ("Compute (3+4)*5^2", "175"),
    ("Please calculate 2 + 3 * 4.", "14"),
    ("what is 15 - 20", "-5"),
    ("What is 5 - (-3)?", "8"),
    ("-3^2", "-9"),
    ("2^3^2", "512"),
    ("what is 3/4 plus 5/6", "19/12"),
    ("What is 1/4 + 1/4?", "1/2"),
    ("What is 10 / 4?", "2.5"),
    ("0.1 + 0.2", "0.3"),
    ("What's 1,234 + 4,321?", "5555"),
    ("3 × 4 ÷ 6", "2"),
    ("12²+5²", "169"),
    ("2½ + ¼", "11/4"),
    (r"\frac{3}{4} + \sqrt{16}", "4.75"),
    ("twelve plus thirty", "42"),
    ("What is two hundred and five minus ninety-nine?", "106"),
    ("square root of 144", "12"),
    ("the square root of the sum of 9 and 16", "5"),
    ("What is the cube root of -27?", "-3"),
    ("7 factorial", "5040"),
    ("What is 5!?", "120"),
    ("2 to the power of 10", "1024"),
    ("Raise 2 to the 5th power", "32"),
    ("half of 90", "45"),
    ("double 21", "42"),
    ("What is a third of 9?", "3"),
    ("5 more than 3 times 4", "17"),
    ("What is 5 less than 12?", "7"),
    ("the product of 6 and 9", "54"),
    ("100 minus the sum of 20 and 30", "50"),
    ("subtract 15 from 40", "25"),
    ("divide 100 by 8", "12.5"),
    ("Multiply 10 by 7.", "70"),
    ("What is the difference between 8 and 20?", "12"),
    ("What is 7 choose 2?", "21"),
    ("What is log base 2 of 8?", "3"),
    ("sin 30 degrees", "0.5"),
    ("What is the square root of 2?", "sqrt(2)"),
    ("Calculate 2^100", "1267650600228229401496703205376"),
    # percentages
    ("17% of 350", "59.5"),
    ("What percent of 80 is 20?", "25%"),
    ("30 is 20% of what number?", "150"),
    ("increase 80 by 15%", "92"),
    ("25% off $40", "30"),
    ("percentage change from 50 to 75", "50%"),
    # lists and number theory
    ("average of 4, 8 and 15", "9"),
    ("median of 3, 9, 4", "4"),
    ("gcd of 84 and 36", "12"),
    ("LCM(4, 6)", "12"),
    ("is 97 prime?", "Yes"),
    ("Is 91 a prime number?", "No"),
    ("Is 1 prime?", "No"),
    ("Is 15 even?", "No"),
    ("Is 12 divisible by 5?", "No"),
    ("Is 144 a perfect square?", "Yes"),
    ("prime factorisation of 360", "2^3 × 3^2 × 5"),
    ("largest prime factor of 84", "7"),
    ("How many factors does 36 have?", "9"),
    ("What is the 10th prime number?", "29"),
    ("next prime after 100", "101"),
    ("remainder when 100 is divided by 7", "2"),
    ("sum of the first 20 odd numbers", "400"),
    ("sum of integers from 1 to 100", "5050"),
    ("sum of the even numbers from 1 to 10", "30"),
    ("sum of the squares of the first 3 integers", "14"),
    ("sum of the digits of 12345", "15"),
    ("How many digits does 144 have?", "3"),
    ("What comes next: 2, 4, 8, 16?", "32"),
    ("Which is larger, 3/4 or 5/7?", "3/4"),
    ("Is 3/4 greater than 0.7?", "Yes"),
    # rounding and forms
    ("round 3.14159 to 2 decimal places", "3.14"),
    ("Round 2.5 to the nearest integer", "3"),
    ("Round -2.5 to the nearest whole number", "-3"),
    ("Round 1234 to the nearest hundred", "1200"),
    ("What is 1000 divided by 3 to 2 decimal places?", "333.33"),
    ("Round 0.0012345 to 2 significant figures", "0.0012"),
    ("Convert 0.75 to a fraction", "3/4"),
    ("Convert 3/8 to a decimal", "0.375"),
    ("Convert 1/8 to a percentage", "12.5%"),
    ("Convert 13 to binary", "1101"),
    # algebra
    ("Solve 2x + 3 = 11 for x", "x = 4"),
    ("Find x: 2(x+1) = 10", "x = 4"),
    ("roots of x^2-5x+6", "x = 2 or x = 3"),
    ("x + y = 10, x - y = 2", "x = 6, y = 4"),
    ("If 2x + 3 = 11, what is 5x?", "20"),
    ("Evaluate x^2 + 1 for x = 3", "10"),
    ("If f(x) = 2x + 3, what is f(4)?", "11"),
    ("f(x) = x^2 - 1. Find f(-2).", "3"),
    ("x^3 = 8", "x = 2"),
    ("solve x^2 + 1 = 0", "x = -i or x = i"),
    ("solve x + 1 = x + 2", "no solution"),
    ("2x + 3 > 7", "x > 2"),
    ("Twice a number plus 3 equals 15. What is the number?", "6"),
    ("What number times 6 gives 42?", "7"),
    ("simplify (x^2-1)/(x-1)", "x + 1"),
    # stories
    ("Tom has 3 boxes with 12 apples each and eats 5. How many are left?", "31"),
    ("A shirt costs $40 and is 25% off. What is the sale price?", "30"),
    ("A meal costs $50. You leave a 20% tip. How much is the tip?", "10"),
    ("I have 3 apples. I buy 2 more. How many do I have?", "5"),
    ("Anna has 12 pencils and gives 4 to Ben. How many pencils does she have left?", "8"),
    ("Tom has 5 apples. Anna has twice as many apples as Tom. How many do they have together?", "15"),
    ("24 sweets are shared equally among 6 children. How many does each child get?", "4"),
    ("Each ticket costs $12. How much do 5 tickets cost?", "60"),
    ("There are 5 bags. Each bag has 8 marbles. How many marbles are there in total?", "40"),
    ("Tom has 3 red apples and 4 green apples. How many apples does he have?", "7"),
    ("A shop had 120 books, sold 45 and received 30 new ones. How many books does it have now?", "105"),
    ("A class has 12 boys and 15 girls. How many students are in the class?", "27"),
    ("Tickets cost $15 each. How much do 4 tickets cost?", "60"),
    ("There are 12 birds on a tree. 3 fly away. How many are left?", "9"),
    ("What is 10% of 20% of 50?", "1"),
    ("What comes next: 1, 4, 9, 16?", "25"),
    ("A car travels at 60 km per hour for 3 hours. How far does it go?", "180"),
]

EXPRESSIONS = [  # many forms are right: compared as expressions
    ("factor x^2 - 9", "(x+3)(x-3)"),
    ("expand (a+b)^3", "a^3 + b^3 + 3ab(a+b)"),
    ("derivative of x^3 sin x", "3x^2 sin x + x^3 cos x"),
    ("Differentiate e^(2x) with respect to x", "2 e^(2x)"),
    ("Integrate 3x^2", "x^3 + C"),
    ("integrate 2x from 0 to 3", "9"),
    ("limit of sin(x)/x as x approaches 0", "1"),
    ("What is 2x + 3x?", "5x"),
    ("solve x^2 = 2", "x = sqrt(2) or x = -sqrt(2)"),
]

# The same questions as people also put them: indirectly, as instructions, with fillers, as small stories.
WORDINGS = [
    ("If I add 120 to 345, what do I get?", "465"),
    ("When you multiply 12 by 15, what is the result?", "180"),
    ("What do I get if I subtract 45 from 100?", "55"),
    ("If you take 17 away from 40, what is left?", "23"),
    ("What is left when 17 is taken away from 40?", "23"),
    ("If 84 is divided by 7, what is the answer?", "12"),
    ("What is the result of dividing 84 by 7?", "12"),
    ("What's the result when 9 is multiplied by 13?", "117"),
    ("What is the result of adding 19 and 24?", "43"),
    ("What is the total if you add 19, 24 and 7?", "50"),
    ("Which number do you get when you add 31 to 56?", "87"),
    ("Tell me what 47 times 6 is.", "282"),
    ("Can you work out what 300 minus 178 equals?", "122"),
    ("I need the product of 14 and 12.", "168"),
    ("How much is 3 less than 20?", "17"),
    ("Find the sum: 12 + 30 + 8", "50"),
    ("What's the remainder if you divide 100 by 7?", "2"),
    ("If 100 is divided by 7, what is the remainder?", "2"),
    ("When 250 is divided by 11, what remains?", "8"),
    ("Divide 250 by 11. What is the remainder?", "8"),
    ("What is left over when you divide 53 by 6?", "5"),
    ("53 divided by 6 leaves what remainder?", "5"),
    ("How much is left over when 53 is divided into groups of 6?", "5"),
    ("What remainder does 53 leave when divided by 6?", "5"),
    ("Give the remainder of 53 divided by 6", "5"),
    ("Give the remainder of the division of 53 by 6", "5"),
    ("Which is the largest number that divides both 18 and 24?", "6"),
    ("What is the biggest whole number that goes into both 35 and 49?", "7"),
    ("Which number is the greatest that divides 18 and 24 evenly?", "6"),
    ("I need the highest common factor of 60 and 84.", "12"),
    ("What is the smallest number that is divisible by both 4 and 6?", "12"),
    ("What is the smallest number divisible by 4 and 6?", "12"),
    ("What is the smallest number that both 8 and 12 divide?", "24"),
    ("Find the least number that is a multiple of both 9 and 6", "18"),
    ("Find the largest common divisor of 18 and 24.", "6"),
    ("Which positive number squared gives 225?", "15"),
    ("What number multiplied by itself is 144?", "12"),
    ("Which number times itself equals 81?", "9"),
    ("What positive number has the square 49?", "7"),
    ("What number must be squared to get 64?", "8"),
    ("The square of which positive number is 121?", "11"),
    ("What's the square root of 196?", "14"),
    ("On average, how much are 4, 8 and 12?", "8"),
    ("What do 4, 8 and 12 average?", "8"),
    ("What is 4, 8 and 12 on average?", "8"),
    ("Average 4, 8 and 12.", "8"),
    ("Average these numbers: 4, 8, 12", "8"),
    ("What's the mean value of 10, 20 and 60?", "30"),
    ("Calculate the average value of 3, 5 and 10", "6"),
    ("What's the solution of the equation 4x + 9 = 33?", "x = 6"),
    ("What is the value of x if 4x + 9 = 33?", "x = 6"),
    ("For which x is 4x + 9 = 33 true?", "x = 6"),
    ("For what value of x does 4x + 9 equal 33?", "x = 6"),
    ("If 5y - 3 = 22, what's y?", "y = 5"),
    ("Which value of y satisfies the equation 5y - 3 = 22?", "y = 5"),
    ("Find y: 5y - 3 = 22", "y = 5"),
    ("What must z be so that 2z + 1 = 15?", "z = 7"),
    ("Tell me the value of x in 3x = 27.", "x = 9"),
    ("I'm looking for x, where 6x - 4 = 20.", "x = 4"),
    ("Determine x from the equation 6x - 4 = 20", "x = 4"),
    ("What does x equal if 6x - 4 = 20?", "x = 4"),
    ("Work out x when 6x - 4 = 20", "x = 4"),
    ("Solve 7x + 2 = 51.", "x = 7"),
    ("Given 6x - 4 = 20, find x.", "x = 4"),
    ("How much is 3/4 + 1/6 in total?", "11/12"),
    ("Compute 2/5 + 1/3 exactly.", "11/15"),
    ("I'd like to give a 15% tip. How much is 15% of 80 dollars?", "12"),
    ("How much is 30% of 250 euros?", "75"),
    ("Tell me 25% of 64.", "16"),
    ("25 percent of 64 is how much?", "16"),
    ("How many is 10 percent of 90?", "9"),
    ("There are 12 boxes with 8 pens in each. How many pens are there? That's 12 * 8.", "96"),
    ("There are 12 boxes with 8 pens in each. How many pens are there?", "96"),
    ("Is 51 a prime number, yes or no?", "No"),
    ("Tell me whether 97 is prime.", "Yes"),
    ("Is it true that 97 is a prime number?", "Yes"),
    ("Take 9 away from 31.", "22"),
    ("Take 9 from 31", "22"),
    ("What's 40 take away 13?", "27"),
    ("By how much is 50 larger than 38?", "12"),
    ("How much more is 50 than 38?", "12"),
    ("What must be added to 38 to get 50?", "12"),
    ("Add 5 to the number 12.", "17"),
    ("What do 310 and 45 add up to?", "355"),
    ("How much do 310 and 45 make together?", "355"),
    ("310 plus 45 equals what?", "355"),
    ("What is the sum when 310 is added to 45?", "355"),
    (
        "A shop sold 310 apples on one day and 45 on the next. How many apples is that in total? That is 310 + 45.",
        "355",
    ),
    ("I have 310 coins and get 45 more. How many coins do I have now?", "355"),
    ("There were 90 birds and 35 flew away. How many are left?", "55"),
    ("How much more is 90 than 35?", "55"),
    ("What's left if 35 is taken from 90?", "55"),
    ("From 90, subtract 35.", "55"),
    ("90 take away 35 is what?", "55"),
    ("What is the difference of 90 and 35?", "55"),
    ("If you subtract 35 from 90, how much remains?", "55"),
    ("What do you get when 12 is multiplied by 11?", "132"),
    ("How much is 12 multiplied by 11?", "132"),
    ("12 times 11 makes how much?", "132"),
    ("A box holds 12 pens. How many pens are in 11 boxes?", "132"),
    ("What is the product when you multiply 12 by 11?", "132"),
    ("How many times does 8 fit into 96?", "12"),
    ("If 96 sweets are shared equally among 8 children, how many does each get?", "12"),
    ("What is 96 shared equally between 8?", "12"),
    ("Split 96 into 8 equal parts. How big is each part?", "12"),
    ("96 over 8", "12"),
    ("What is one eighth of 96?", "12"),
    ("What percentage of 80 is 20?", "25%"),
    ("What's 15 per cent of 60?", "9"),
    ("A coat costs 80 dollars and is 25% off. What does it cost now?", "60"),
    ("Take 10% of 250.", "25"),
    ("If 7x + 3 = 45, what does x equal?", "x = 6"),
    ("Solve the equation 7x + 3 = 45.", "x = 6"),
    ("What number must x be if 7x + 3 = 45?", "x = 6"),
    ("Let 7x + 3 = 45. What is x?", "x = 6"),
    ("7 times a number plus 3 is 45. What is the number?", "6"),
    ("Find the value of x for which 7x + 3 = 45.", "x = 6"),
    ("The equation 7x + 3 = 45 has what solution?", "x = 6"),
    ("Compute 4 + 6 x 3 - 2", "20"),
    ("Using the order of operations, what is 4 + 6 * 3 - 2?", "20"),
    ("What's the value of (7 - 2) * 9?", "45"),
    ("Multiply the sum of 4 and 5 by 3.", "27"),
    ("What is 13 to the power of 2?", "169"),
    ("What is 13 squared?", "169"),
    ("Square 13.", "169"),
    ("Raise 2 to the power of 10.", "1024"),
    ("What is 2 raised to the 10th power?", "1024"),
    ("How much is 5 cubed?", "125"),
    ("Find the square of 13", "169"),
    ("What's 13 times itself?", "169"),
    ("Work out the positive square root of 169", "13"),
    ("Which number gives 169 when squared?", "13"),
    ("What number, when squared, equals 169?", "13"),
    ("What number when multiplied by itself gives 169?", "13"),
    ("The numbers 4, 8 and 12 have what average?", "8"),
    ("Find the arithmetic mean of these numbers: 4, 8, 12", "8"),
    ("What is the average if the values are 4, 8 and 12?", "8"),
    ("Three numbers are 4, 8 and 12. What is their average?", "8"),
    ("What is 45 mod 7?", "3"),
    ("45 divided by 7 leaves which remainder?", "3"),
    ("What remainder do you get when dividing 45 by 7?", "3"),
    ("When 45 is divided by 7, how much is left over?", "3"),
    ("How much remains when 45 is divided by 7?", "3"),
    ("After dividing 45 by 7, what is the remainder?", "3"),
    ("Give the remainder when 45 is divided by 7.", "3"),
    ("45 sweets are shared among 7 children. How many are left over?", "3"),
    ("What is the largest common factor of 18 and 24?", "6"),
    ("What's the GCF of 18 and 24?", "6"),
    ("Which number is the greatest common divisor of 18 and 24?", "6"),
    ("What is the smallest number that 4 and 6 both divide?", "12"),
    ("Which is the smallest positive number that both 4 and 6 go into?", "12"),
    ("What is the smallest number you can divide by both 4 and 6?", "12"),
    ("What number is the least common multiple of 4 and 6?", "12"),
    ("I need the LCM of 4 and 6.", "12"),
    ("Add the fractions 1/2 and 1/3.", "5/6"),
    ("What is one half plus one third?", "5/6"),
    ("What is the sum of 1/2 and 1/3 as a fraction?", "5/6"),
    ("Work out 1/2 + 1/3 and give the answer as a fraction.", "5/6"),
    ("What fraction do you get if you add 1/2 and 1/3?", "5/6"),
    ("1/2 + 1/3 = ?", "5/6"),
]

DECLINED = [
    "",
    "   \n ",
    "What's the capital of France?",
    "How many r's in strawberry?",
    "How many letters are in 'twelve'?",
    "What day is 2024-02-29?",
    "What is 12/25/2024?",
    "What is 10:30 plus 20?",
    "Convert 5 miles to km",
    "How many days are in two weeks?",
    "How many days are there between 3 March 2024 and 10 April 2024?",
    "Tell me a joke",
    "Hello",
    "What is love?",
    "What is 42?",
    "Who won in 1998?",
    "9**9**9**9",
    "9^9^9^9^9",
    "100000!",
    "(10^3000)^3000",
    "1/0",
    "0^0",
    "the sum of 3 and 4 times 5",
    "A farmer has 17 sheep and all but 9 die. How many are left?",
    "Tom has 5 apples and 3 oranges. How many apples does Tom have?",
    "What is -5 squared?",
    "How many 3s are in 333?",
    "Tom has 3 apples. How many apples does Anna have?",
    "Tom has 3 apples. How many oranges does he have?",
    "Tom was born in 1990 and has 2 kids. How many kids does Tom have?",
    "Tom is 12 years old and has 3 apples. How many apples does Tom have?",
    "Tom and 3 friends share 12 sweets equally. How many does each get?",
    "Tom has 5 apples. He does not eat 2. How many are left?",
    "What is 2+2? What is 3+3?",
    "().__class__.__bases__[0]",
    "__import__('os').system('true')",
    "x.diff(x)",
    "lambda: 0",
    "exec(1)",
    "(" * 500 + "1" + ")" * 500,
    "1+" * 3000 + "1",
    "banana split " * 800,
    "\x00\ud800 2+",
    "If a man adds 3 apples to 5 oranges, what fruit is it?",
    "If 366 is divided by pi unevenly, what is the remainder?",
    "On average, how much do 3 cats weigh?",
    "Which number squared gives happiness?",
    "What must be added to 2 eggs to get a cake?",
    "Average 4 stars and 3 reviews?",
    "What is left when the 3 tenors leave?",
    "What is the largest number?",
    "What's the solution of the crisis?",
    "I need the 3 best books.",
    "The house has 3 rooms. Who owns the house with 3 rooms?",
    "When 2 becomes 1, what song is it?",
    "What remains of the 3 pyramids?",
    "Which of 2 wars was longer?",
    "How many days are in 2 weeks?",
    "Tell me whether 1900 was a leap year",
    "The meeting on 3 May 2021 was moved 3 weeks earlier. What is the new date?",
    "May 2020 has how many days?",
    "If you add 2 to 3, what is the product?",
    "A farmer sold 5 pigs. How many pigs does he have?",
    "A bag weighs 3 kilograms. What is its weight in grams?",
]


def test_it_is_a_skill() -> None:
    skill: Skill = SKILL
    assert (skill.name, skill.domain) == ("symbolic", "arithmetic and algebra")


@pytest.mark.parametrize(("question", "answer"), ANSWERS)
def test_answers(question: str, answer: str) -> None:
    found = SKILL.solve(question)
    assert found is not None
    assert found.value == answer
    assert found.working.strip()


@pytest.mark.parametrize(("question", "answer"), WORDINGS)
def test_wordings(question: str, answer: str) -> None:
    found = SKILL.solve(question)
    assert found is not None
    assert found.value == answer


@pytest.mark.parametrize(("question", "answer"), EXPRESSIONS)
def test_expressions(question: str, answer: str) -> None:
    found = SKILL.solve(question)
    assert found is not None
    assert SKILL.same(found.value, answer), found.value


@pytest.mark.parametrize("question", DECLINED)
def test_declines_within_seconds(question: str) -> None:
    began = time.monotonic()
    assert SKILL.solve(question) is None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("question", [question for question, _ in ANSWERS])
def test_each_of_them_is_one_step(question: str) -> None:
    assert len(split_steps(question)) == 1


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("x = 2 or x = 3", "3 and 2", True),
        ("x = 2 or x = 3", "x = 2", False),
        ("x = 4", "4", True),
        ("(x - 3)*(x + 3)", "x^2 - 9", True),
        ("x^3/3 + C", "x^3/3 + 1", False),
        ("1/2", "0.5", True),
        ("0.333", "1/3", False),
        ("sqrt(8)", "2*sqrt(2)", True),
        ("Yes", "yes of course", False),
        ("9^9^9^9", "1", False),
    ],
)
def test_sameness(a: str, b: str, same: bool) -> None:
    assert SKILL.same(a, b) is same
    assert SKILL.same(b, a) is same


def test_names_outside_the_table_are_unreadable() -> None:
    for text in ("os", "x.y", "import os", "f(x)", "g(2)", "eval(2)", "a_b", "'a'", "Integer(3)"):
        with pytest.raises(Unreadable):
            parse(text)


VOCABULARY = (
    "what is the sum of and plus minus times divided by percent of off x y 2x 3 7 0 12 1/2 -4 ( ) ^ ! % = , . ? "
    "solve for if number a twice half square root average factor derivative integrate from to round nearest ten "
    "prime has apples eats each how many left costs $40 Tom it remainder when first digits"
)
WORDS = st.sampled_from(VOCABULARY.split())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.lists(WORDS, max_size=14).map(" ".join))
def test_never_raises_on_its_own_words(text: str) -> None:
    found = SKILL.solve(text)
    assert found is None or (found.value and "zoo" not in found.value and "nan" not in found.value)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(max_size=80))
def test_never_raises_on_any_text(text: str) -> None:
    assert SKILL.solve(text) is None or text.strip()
    assert SKILL.same(text, text) in (True, False)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_products_and_sums_are_exact(a: int, b: int) -> None:
    for question, value in ((f"What is {a} times {b}?", a * b), (f"({a}) + ({b})", a + b)):
        found = SKILL.solve(question)
        assert found is not None
        assert found.value == str(value)
