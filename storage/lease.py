"""Which process writes a row, and whether it still lives.

An unfinished run or training run holds its writer's identity (`PLACE|PID|START`) and a heartbeat that the writer
renews every HEARTBEAT_S. The place is host, boot and process namespace, so that a container, or the machine after
a reboot, is another place.

- Same place: the process table decides, together with the process's start time, because process ids are reused.
  A writer that is suspended or busy keeps its rows however old its heartbeat is.
- Another place, or a system whose process table cannot be read here: the heartbeat decides. After STALE_S of
  silence the writer counts as dead. That supposes clocks less than a minute apart.
- No identity (an imported row): nobody writes it.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from pathlib import Path

HEARTBEAT_S = 10.0
STALE_S = 90.0


def identity() -> str:
    """This process, as it is written into rows."""
    return _identity(os.getpid())


def alive(process: str | None, heartbeat_at: float | None, now: float, stale_s: float = STALE_S) -> bool:
    """Whether the writer `process` may still be at work; `now` is UTC epoch seconds."""
    if not process:
        return False
    place, _, rest = process.partition("|")
    pid, _, start = rest.partition("|")
    if place == _place() and pid.isdecimal():
        running = _running(int(pid), start)
        if running is not None:
            return running
    return heartbeat_at is not None and now - heartbeat_at < stale_s


@cache
def _identity(pid: int) -> str:
    return f"{_place()}|{pid}|{_started(pid) or '?'}"


@cache
def _place() -> str:
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass
    return "/".join(parts).replace("|", "_")


def _started(pid: int) -> str | None:
    """Start of a process in clock ticks since boot; None where /proc does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command before it may hold blanks and brackets
    # A zombie has ended; it only waits to be collected.
    return None if not fields or fields[0] in "ZX" else fields[19]


def _running(pid: int, start: str) -> bool | None:
    """True or False when that is certain, None when it is not."""
    if Path("/proc/self/stat").exists():
        return _started(pid) == start
    if sys.platform == "win32":
        return None  # os.kill would end the process there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return None  # there is such a process, but it may be another one
