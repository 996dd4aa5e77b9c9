"""A skill in a process of its own, so that no question can hang or bloat the server.

The child imports one skill, reads one JSON object a line and answers with one. Its watchdog ends it when a question
takes too long; that needs neither the GIL nor signals, so not even one huge multiplication outlasts it, nor does an
orphan outlive its parent. The parent kills it when the caller stops waiting. Either way the next question starts a
new one. Nothing is pickled and `__main__` is never imported again, so this works from scripts and notebooks alike.

Not covered: isolation. A skill is our own code; the process bounds time and, where the system can, memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trinity_core.errors import AgentError

START_LIMIT = 60.0
"""Seconds a child may take to import its skill, on a busy machine."""
MEMORY_LIMIT = 2 << 30
"""Bytes of address space a child may use, where the system can limit it."""
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from trinity_core.agents.child import serve; serve(sys.argv[2], float(sys.argv[3]))"
)
_WATCHDOG_EXIT = 1  # the status faulthandler ends a process with


class Overtime(Exception):
    """The question took more time or memory than a child may use."""


class SkillProcess:
    """Runs `target` ("module:Class", a Skill) in a child, started at the first call; calls queue.

    `limit` is in seconds per question. Every call raises Overtime when the limit was hit and AgentError (kind
    internal) when no child can be started. Cancelling a call kills the child at once.
    """

    def __init__(self, target: str, limit: float) -> None:
        self._target, self._limit = target, limit
        self._queue = ThreadPoolExecutor(max_workers=1, thread_name_prefix=target.rpartition(":")[2])
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._current: threading.Event | None = None
        self._about: Mapping[str, Any] = {}
        self._end: weakref.finalize[..., SkillProcess] | None = None

    async def about(self) -> tuple[str, str]:
        """Name and domain of the skill."""
        reply = self._about or await self._call({"about": True})
        return str(reply["name"]), str(reply["domain"])

    async def solve(self, forms: Sequence[str]) -> tuple[str, str, int] | None:
        """Value and working of the first of `forms` that the skill solves, and the index of that form."""
        found = (await self._call({"solve": list(forms)}))["found"]
        return (str(found[0]), str(found[1]), int(found[2])) if found else None

    async def same(self, a: str, b: str) -> bool:
        """Whether the skill says that two answers mean the same; False when it has no opinion."""
        return bool((await self._call({"same": [a, b]}))["found"])

    def close(self) -> None:
        """End the child; a call in progress fails. The next call starts another one."""
        with self._lock:
            if self._current:
                self._current.set()
            self._kill()

    async def _call(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        stop = threading.Event()
        job = self._queue.submit(self._ask, message, stop)
        try:
            return await asyncio.wrap_future(job)
        finally:
            if not job.done():
                stop.set()
                with self._lock:
                    if self._current is stop:
                        self._kill()

    def _ask(self, message: Mapping[str, Any], stop: threading.Event) -> Mapping[str, Any]:
        """One exchange with the child, in the queue's thread. A second try covers a child that was killed for
        another caller just before, or ended while it was idle."""
        data = json.dumps(message).encode("ascii") + b"\n"
        try:
            for _ in range(2):
                child = self._started(stop)
                if reply := _exchange(child, data):
                    return reply
                status = child.wait()
                if stop.is_set():
                    break
                if status == _WATCHDOG_EXIT:
                    raise Overtime
        finally:
            with self._lock:
                self._current = None
        if stop.is_set():
            raise AgentError("The specialist was stopped.", kind="internal", retryable=True)
        raise Overtime  # ended twice on the same question: out of memory

    def _started(self, stop: threading.Event) -> subprocess.Popen[bytes]:
        with self._lock:
            self._current = stop
            if self._child and self._child.poll() is None:
                return self._child
            self._kill()
            if stop.is_set():
                raise AgentError("The specialist was stopped.", kind="internal", retryable=True)
            child = self._child = _launch(self._target, self._limit)
            self._end = weakref.finalize(self, _finish, child)
        if not (about := _exchange(child, b"")):
            child.wait()
            if stop.is_set():
                raise AgentError("The specialist was stopped.", kind="internal", retryable=True)
            raise AgentError(f"The process of the specialist {self._target} does not start.", kind="internal")
        self._about = about
        return child

    def _kill(self) -> None:
        if self._end:
            self._end()
        self._child = self._end = None


def _launch(target: str, limit: float) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), target, str(limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the parent's to handle
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as error:
        raise AgentError(f"No process can be started for a specialist ({error.strerror}).", kind="internal") from None


def _exchange(child: subprocess.Popen[bytes], data: bytes) -> Mapping[str, Any] | None:
    """Send `data` (a line, or nothing) and read a line; None when the child is gone."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        if data:
            child.stdin.write(data)
            child.stdin.flush()
        line = child.stdout.readline()
    except (OSError, ValueError):  # ValueError: the pipe was closed by _finish meanwhile
        return None
    return json.loads(line) if line.endswith(b"\n") else None


def _finish(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):  # a thread that still reads gets the end of the file first
        with contextlib.suppress(OSError, ValueError):
            if pipe:
                pipe.close()


# --- In the child -------------------------------------------------------------------------------------------


def serve(target: str, limit: float) -> None:
    """The child's life: import the skill, then answer lines until stdin ends."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    os.dup2(nowhere.fileno(), 1)  # whatever a library prints must not reach the protocol
    faulthandler.dump_traceback_later(START_LIMIT, exit=True, file=nowhere)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    module, _, name = target.partition(":")
    skill = getattr(importlib.import_module(module), name)()
    about = {"name": skill.name, "domain": skill.domain}
    out.write(json.dumps(about).encode("ascii") + b"\n")
    faulthandler.cancel_dump_traceback_later()
    for line in sys.stdin.buffer:
        faulthandler.dump_traceback_later(limit, exit=True, file=nowhere)
        message = json.loads(line)
        reply = about if "about" in message else _answer(skill, message)
        faulthandler.cancel_dump_traceback_later()
        out.write(json.dumps(reply).encode("ascii") + b"\n")


def _answer(skill: Any, message: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        if "same" in message:
            same = getattr(skill, "same", None)
            return {"found": bool(same(*message["same"])) if same else False}
        for index, form in enumerate(message["solve"]):
            if solution := skill.solve(form):
                return {"found": [solution.value, solution.working, index]}
    except Exception:  # the process boundary: whatever a library raised, this question is not solved
        return {"found": None}
    return {"found": None}
