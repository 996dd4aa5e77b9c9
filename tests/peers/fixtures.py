"""The peers as pytest fixtures, each started once a session when a test first asks for it.

Use: `from tests.peers.fixtures import litellm_peer, llama_peer, llmock_peer, limited_peer`. Where LiteLLM's own
environment is missing its tests are skipped; with TRINITY_REQUIRE_LITELLM=1 they fail instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.peers import Peer, Unavailable
from tests.peers.litellm import litellm
from tests.peers.llama import llama
from tests.peers.llmock import LLMock, llmock
from tests.peers.situations import CONTEXT_WINDOW, QUOTA


@pytest.fixture(scope="session")
def llmock_peer() -> Iterator[LLMock]:
    """llmock without limits; whoever uses it says what it does to which model."""
    with llmock() as server:
        yield server


@pytest.fixture(scope="session")
def limited_peer() -> Iterator[LLMock]:
    """llmock with a small quota of tokens and a small context window."""
    with llmock(tpm=QUOTA, context_window=CONTEXT_WINDOW) as server:
        yield server


@pytest.fixture(scope="session")
def llama_peer() -> Iterator[Peer]:
    """llama.cpp with the embedded weights."""
    with llama() as peer:
        yield peer


@pytest.fixture(scope="session")
def litellm_peer(llama_peer: Peer) -> Iterator[Peer]:
    """The LiteLLM proxy, with llama.cpp behind its model `real`."""
    try:
        server = litellm(llama_peer.bases["openai"])
        peer = server.__enter__()
    except Unavailable as error:
        if os.environ.get("TRINITY_REQUIRE_LITELLM") == "1":
            pytest.fail(f"LiteLLM is required: {error}")
        pytest.skip(f"LiteLLM is not installed: {error}")
    try:
        yield peer
    finally:
        server.__exit__(None, None, None)
