"""A member that is called over the network, in whatever wire format: retries, limits, deadlines and accounts.

A call waits for one of the member's slots and its rates, asks the circuit breaker and the day's budget, and makes
one attempt (`exchange.py`). A failure that may pass is tried again after a pause with full jitter, at least as long
as the server asked for; never beyond the total deadline, the run's allowance of calls, or a breaker that opened. A
field that the server says it does not take is left out, at once and from then on.

Invariants: the work is done in a task of its own, so it does not matter from which task the reply is read; ending the
iterator cancels it, and the connection is closed before that returns. Every attempt is settled with the meter exactly
once. What was shown before a failure is taken back by a Reset before anything else is shown. Times count from the
call's start, waiting and failed attempts included. Errors name the member and hold no key.

Sockets, slots and rates belong to an event loop: a member that is used from several has one set in each.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace

from aiolimiter import AsyncLimiter
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from trinity_core import wire
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Veil
from trinity_core.agents.meter import Ticket, worst_case
from trinity_core.agents.prices import price
from trinity_core.agents.remote import net
from trinity_core.agents.remote.breaker import Breaker
from trinity_core.agents.remote.exchange import Exchange
from trinity_core.agents.remote.formats import Format
from trinity_core.agents.remote.service import Service
from trinity_core.errors import AgentError, TrinityError
from trinity_core.types import AgentSpec, Piece, Reply, Request, Reset, Usage

BACKOFF_S = 0.5
"""Seconds: the first pause is drawn from 0 to this, each further one from 0 to twice as much, as in the SDKs."""
MOST_BACKOFF_S = 8.0
_MAY_PASS = frozenset(("rate_limit", "transient", "transport", "timeout", "truncated", "protocol"))
_MOST_DROPS = 6
"""Fields that one call may leave out; a server that complains about more has another trouble."""
_CLOSE_S = 5.0
_ANY = Usage(1000, 1000)

Item = Piece | Reset | Reply | Exception


class RemoteAgent:
    """One remote member of the pool. May be used from any thread, in any event loop."""

    def __init__(self, spec: AgentSpec, format: Format, wiring: Wiring) -> None:
        """Connects to nothing. Raises PoolError when the service settings do not fit."""
        self._spec = spec
        self.format, self.wiring = format, wiring
        self.service = Service.read(spec)
        self.breaker = Breaker(self.service.rest_after, self.service.rest_s)
        wiring.breakers[spec.name] = self.breaker
        self.dropped: frozenset[str] = frozenset()
        self._key: tuple[str | None] | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _Here] = {}

    @property
    def spec(self) -> AgentSpec:
        return self._spec

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        """Stream one reply. Raises AgentError of any kind, with the attempts made (`calls`) and how many of them may
        have cost something nobody told (`unpriced`)."""
        here = await self._here()
        call = _Call(self, here, request)
        task = asyncio.create_task(call.work())
        here.tasks.add(task)
        try:
            while True:
                item = await call.items.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if isinstance(item, Reply):
                    return
        finally:
            task.cancel()
            await asyncio.wait({task})
            here.tasks.discard(task)

    async def aclose(self) -> None:
        """Stop every call, which makes it fail, and close all connections, in whichever loop. Calls made later
        fail."""
        with self._lock:
            self._closed = True
            loops, self._loops = self._loops, {}
        for loop, here in loops.items():
            if loop is asyncio.get_running_loop():
                await here.close()
            elif loop.is_running():
                closing = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(here.close(), loop))
                with suppress(TimeoutError):  # that loop ended meanwhile, and its connections with it
                    await asyncio.wait_for(closing, _CLOSE_S)

    def key(self) -> str | None:
        """The key to send. Another key than before is a reason to try a resting member at once."""
        key = self.wiring.keys.of(self._spec)
        with self._lock:
            changed, self._key = self._key is not None and self._key != (key,), (key,)
        if changed:
            self.breaker.reset()
        return key

    def drop(self, name: str) -> None:
        """From now on leave out the request's field `name`."""
        with self._lock:
            self.dropped |= {name}

    def closed_error(self, calls: int = 0) -> AgentError:
        return AgentError(
            f"{self._spec.name} was closed, because the pool has changed or the program ends.", calls=calls
        )

    async def _here(self) -> _Here:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise self.closed_error()
            for other in [each for each in self._loops if each.is_closed()]:
                del self._loops[other]
            here = self._loops.get(loop)
            if here is None:
                here = self._loops[loop] = _Here(self.service)
        await here.watch()
        return here


class _Here:
    """What a member has in one event loop."""

    def __init__(self, service: Service) -> None:
        self.client = net.client(connect_s=service.connect_s)
        self.slots = asyncio.Semaphore(service.concurrency)
        self.requests = AsyncLimiter(service.requests_per_minute) if service.requests_per_minute else None
        self.tokens = AsyncLimiter(service.tokens_per_minute) if service.tokens_per_minute else None
        self.tasks: set[asyncio.Task[None]] = set()
        self._end: AsyncGenerator[None, None] | None = None

    async def watch(self) -> None:
        """See to it that the connections are closed when the loop ends without anybody calling `close`."""
        if self._end is None:
            self._end = self._until_the_end()
            await anext(self._end)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield  # a loop that ends closes its asynchronous generators
        finally:
            await self.client.aclose()

    async def rates(self, request: Request) -> None:
        """Wait until the rates allow the call."""
        if self.requests:
            await self.requests.acquire()
        if self.tokens:
            await self.tokens.acquire(min(worst_case(request).tokens, self.tokens.max_rate))

    async def close(self) -> None:
        tasks = tuple(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._end is not None:
            await self._end.aclose()


class _Call:
    """One reply in the making, over all its attempts. `work` runs in a task of its own and fills `items`, of which
    the last is a Reply or an exception."""

    def __init__(self, agent: RemoteAgent, here: _Here, request: Request) -> None:
        self.items: asyncio.Queue[Item] = asyncio.Queue()
        self._agent, self._here, self._request = agent, here, request
        self._started = asyncio.get_running_loop().time()
        self._deadline = self._started + agent.service.total_s
        self._backoff = wait_random_exponential(multiplier=BACKOFF_S, max=MOST_BACKOFF_S)
        self._calls = self._unpriced = 0
        self._usage = Usage()
        self._cost: float | None = None
        self._shown = False
        self._warnings: list[str] = []
        self._last = self._note = ""

    async def work(self) -> None:
        retrying = AsyncRetrying(
            sleep=asyncio.sleep, retry=retry_if_exception(_may_pass), wait=self._wait, stop=self._stop, reraise=True
        )
        try:
            self.items.put_nowait(await retrying(self._attempt))
        except AgentError as error:
            self.items.put_nowait(self._final(error))
        except TrinityError as error:
            self.items.put_nowait(error)
        except asyncio.CancelledError:
            self.items.put_nowait(self._agent.closed_error(self._calls))  # heard only where the member was closed
            raise
        except Exception as error:  # a bug of ours must not leave the reader waiting
            words = f"It failed: {type(error).__name__}: {error}"
            self.items.put_nowait(self._final(AgentError(words)))

    # --- Trying again -------------------------------------------------------------------------------------

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, AgentError) else None
        return max(self._backoff(state), asked or 0.0)

    def _stop(self, state: RetryCallState) -> bool:
        agent, left = self._agent, self._deadline - asyncio.get_running_loop().time()
        if state.attempt_number > agent.service.retries or left <= 0:
            return True
        if agent.breaker.reason() is not None:
            self._note = "It has failed too often and rests, so it is not tried again now."
        elif self._request.max_calls is not None and self._calls >= self._request.max_calls:
            self._note = "The budget of the run allows no further call."
        elif state.upcoming_sleep >= left:
            self._note = (
                f"The next try would come in {state.upcoming_sleep:.0f} s, after the deadline of "
                f"{agent.service.total_s:g} s (total_s) for the whole call."
            )
        return bool(self._note)

    async def _attempt(self) -> Reply:
        """One attempt; repeated at once as long as the server names another field to leave out."""
        while True:
            used = self._agent.dropped
            try:
                return await self._once()
            except AgentError as error:
                if error.calls:  # else no attempt was made, and why the last one failed still matters
                    self._last = str(error)
                name = error.drop
                spent = self._request.max_calls is not None and self._calls >= self._request.max_calls
                if name is None or name in used or spent or len(self._warnings) >= _MOST_DROPS:
                    raise
                self._agent.drop(name)
                self._warnings.append(f"The server does not take {name}; it is left out of requests from now on.")

    # --- One attempt --------------------------------------------------------------------------------------

    async def _once(self) -> Reply:
        agent, meter = self._agent, self._agent.wiring.meter
        key = await self._ready()
        try:
            self._needs(key)
            call = agent.format.call(self._request, key, drop=agent.dropped)
            veil = Veil(key)
            exchange = Exchange(agent.format, self._request, agent.service, lambda item: self._show(veil.over(item)))
            trial = agent.breaker.admit()
            try:
                ticket = meter.admit(self._request)
                self._begin()
                try:
                    reply = await exchange.run(self._here.client, call, self._hops(), self._deadline)
                except BaseException as error:
                    self._show(veil.rest(broken=True))
                    self._account(ticket, exchange)
                    if isinstance(error, AgentError):
                        error = self._explained(error)
                        agent.breaker.failed(error)
                    raise error from None
                agent.breaker.succeeded()
                self._show(veil.rest())
                return veil.reply(self._whole(ticket, exchange, reply))
            finally:
                if trial:
                    agent.breaker.abandoned()
        finally:
            self._here.slots.release()

    def _needs(self, key: str | None) -> None:
        """Raise AgentError when the provider itself would be asked without a key: it refuses that anyway."""
        spec, own = self._agent.spec, self._agent.format.default_base_url
        if key or (own if spec.base_url is None else spec.base_url) != own:
            return
        where = f"Put it into {spec.key_env} and start again" if spec.key_env else "Name its variable (key_env)"
        raise AgentError(
            f"It needs a key and none is set. {where}, or type it in the Pool tab.", kind="auth", calls=0
        )

    async def _ready(self) -> str | None:
        """Wait for a slot and the rates. The key; raises AgentError when the call may not be made."""
        service = self._agent.service
        try:
            async with asyncio.timeout_at(self._deadline):
                # A keyring may wait for its owner, and the price list takes its time when it is first asked.
                key = await asyncio.to_thread(self._allowed)
                await self._here.slots.acquire()
                try:
                    await self._here.rates(self._request)
                except BaseException:
                    self._here.slots.release()
                    raise
        except TimeoutError:
            raise AgentError(
                f"Its {service.concurrency} slots or its rates were taken for all of the {service.total_s:g} s that "
                "the call may last (total_s). Raise concurrency or the rates, or ask it less at once.",
                kind="timeout",
                retryable=True,
                calls=0,
            ) from None
        return key

    def _allowed(self) -> str | None:
        """The key, unless it is known already that the call may not be made. Runs in a thread."""
        agent = self._agent
        key = agent.key()
        if reason := agent.breaker.reason():
            raise AgentError(reason, kind="resting", calls=0)
        if reason := agent.wiring.meter.refusal(self._request):
            raise AgentError(reason, kind="budget", calls=0)
        return key

    def _hops(self) -> dict[str, str]:
        return net.hop_headers(self._request.via, self._agent.wiring.server_id)

    def _begin(self) -> None:
        self._calls += 1
        if self._shown:
            self._shown = False
            self.items.put_nowait(Reset(f"{self._last} It is tried again."))

    def _show(self, items: Sequence[Piece | Reset]) -> None:
        for item in items:
            self._shown = isinstance(item, Piece)
            self.items.put_nowait(item)

    # --- Accounts -----------------------------------------------------------------------------------------

    def _account(self, ticket: Ticket, exchange: Exchange) -> None:
        """Settle an attempt that failed or was given up."""
        spec, meter, usage = self._agent.spec, self._agent.wiring.meter, exchange.reader.usage
        if not exchange.sent:
            meter.settle(ticket, Usage(), 0.0, failed=True, called=False)
            return
        cost: float | None = 0.0
        if exchange.turned_away:
            usage = Usage()
        elif exchange.ended:
            cost = price(spec, usage)
        elif price(spec, _ANY) != 0:
            cost = None
        meter.settle(ticket, usage, cost, failed=True)
        self._add(usage, cost)

    def _whole(self, ticket: Ticket, exchange: Exchange, reply: Reply) -> Reply:
        """Settle an attempt that ended well. The reply, with what the other attempts used and cost added."""
        cost = price(self._agent.spec, reply.usage, reply.cost)
        self._agent.wiring.meter.settle(ticket, reply.usage, cost)
        self._add(reply.usage, cost)
        counted = reply.usage.input is not None and reply.usage.output is not None
        first = exchange.first_at
        return replace(
            reply,
            usage=self._usage if counted else reply.usage,
            cost=self._cost if self._cost or cost is not None else None,
            first_token_s=None if first is None else first - self._started,
            seconds=asyncio.get_running_loop().time() - self._started,
            request_id=exchange.request_id or reply.request_id,
            calls=self._calls,
            unpriced=self._unpriced,
            warnings=(*self._warnings, *reply.warnings),
        )

    def _add(self, usage: Usage, cost: float | None) -> None:
        self._usage += usage
        if cost is None:
            self._unpriced += 1
        else:
            self._cost = cost + (self._cost or 0.0)

    # --- Errors -------------------------------------------------------------------------------------------

    def _explained(self, error: AgentError) -> AgentError:
        """`error` without keys; where the key was refused, with where it came from."""
        error.args = (wire.redact(" ".join(filter(None, (str(error), self._about_the_key(error))))),)
        return error

    def _about_the_key(self, error: AgentError) -> str:
        if error.kind != "auth":
            return ""
        spec, state = self._agent.spec, self._agent.wiring.keys.state(self._agent.spec)
        if state.where == "environment":
            return f"The key came from the environment variable {spec.key_env}."
        if state.where != "none":
            return "The key was typed in the Pool tab; type it again."
        if spec.key_env:
            return f"No key is set: put it into the environment variable {spec.key_env}, or type it in the Pool tab."
        return "No key is set: name the environment variable that holds it (key_env), or type it in the Pool tab."

    def _final(self, error: AgentError) -> AgentError:
        """The error for whoever asked: with the member's name, the number of attempts and why there are no more."""
        tried = f"It was tried {self._calls} times." if self._calls > 1 else ""
        before = f"The attempt before failed: {self._last}" if self._last and not error.calls else ""
        words = " ".join(filter(None, (f"{self._agent.spec.name}: {error}".rstrip(), tried, before, self._note)))
        return AgentError(
            wire.redact(words),
            kind=error.kind,
            retryable=error.retryable,
            retry_after=error.retry_after,
            calls=self._calls,
            unpriced=self._unpriced,
            usage=self._usage,
            cost=self._cost or None,
        )


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, AgentError) and error.retryable and error.kind in _MAY_PASS
