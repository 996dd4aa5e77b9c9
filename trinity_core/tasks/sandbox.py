"""Running Python that nobody vouches for: a bubblewrap box without network, files or a way to stay alive.

What a program gets: a Python without site-packages (`-I -S`), the libraries that Python is linked with, /proc of its
own process namespace, a small /tmp, no environment, no capability, a user that is not root.

Invariants:

- Never outside the box: without a working `bwrap` nothing runs, and `available` says why.
- Whatever a program starts ends with it. The box is a process namespace: when its first process goes, all go.
- No privileged user inside. A normal user is mapped to another one in a user namespace. For root there is no user
  namespace: the first lines inside give up root for a random high user id. The kernel exempts the real root from the
  limit on processes, so mapping it to another number would not bind a fork bomb.
- A system call filter forbids new namespaces (in which a program would be root again and could mount memory),
  memory that no limit counts (memfd, System V), reading other processes and rarely used, risky interfaces.
- Limits on time, processor time, address space, processes, files and output are set inside; the parent watches the
  clock, the output and the memory of all processes together.

Not covered: kernel bugs; side channels such as timing; processors other than x86-64 and arm64 (refused); kernels
before 5.14, where the process limit also counts the user's other processes. Memory of all processes together is
looked at every 50 ms, so it can be exceeded for that long; each process by itself is bound at once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import random
import select
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from trinity_core.errors import ConfigError

MIB = 1024 * 1024
WATCH_S = 0.05
"""Seconds between two looks at the memory."""

END_S = 5.0
"""Seconds to wait for the kernel to end what was killed."""

Stopped = Literal["", "time", "output", "memory"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a box may use. All boxes of one `run_together` share `seconds`; the rest holds for each box."""

    seconds: float = 10.0
    """Wall time; a process may use as much processor time, rounded up, and one second."""
    memory: int = 512 * MIB
    """Bytes of address space of one process, and of resident memory of all of them together."""
    processes: int = 16
    """Processes and threads at a time."""
    output: int = MIB
    """Bytes of stdout and stderr together."""
    scratch: int = 16 * MIB
    """Bytes of /tmp, and of the largest file."""
    files: int = 64
    """Open files of a process."""


@dataclass(frozen=True, slots=True)
class Program:
    """Python source run as `__main__`, and its input.

    `descriptors` are handed over: they are closed here once the program has started, so that the end of one program
    is seen by the other end of a pipe. Inside, `sys.argv[1:]` holds their numbers.
    """

    source: str
    stdin: bytes = b""
    descriptors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended. `status` is the exit status, 128 and more for a signal, None when it was stopped.

    `stopped` names the limit that ended it, empty when none did. `stdout` and `stderr` hold what came before.
    """

    status: int | None
    stdout: bytes
    stderr: bytes
    stopped: Stopped
    seconds: float


# The first lines inside. They give up what the program must not have, then become the program's own __main__.
_BOOT = """
import os, resource, sys
source, user, cpu, memory, processes, scratch, files = map(int, sys.argv[1:8])
if user:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
for name, most in (("CORE", 0), ("CPU", cpu), ("AS", memory), ("NPROC", processes), ("FSIZE", scratch),
                   ("NOFILE", files), ("MSGQUEUE", 0), ("MEMLOCK", 0), ("STACK", min(memory, 8 << 20))):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
os.chdir("/tmp")
with open(source, "rb") as file:
    code = compile(file.read(), "program.py", "exec")
sys.argv = ["program.py", *sys.argv[8:]]
sys.modules["__main__"] = main = type(sys)("__main__")
exec(code, main.__dict__)
"""


# --- The system call filter -----------------------------------------------------------------------------------

_NEW_NAMESPACES = 0x7E02_0000
"""Flags of clone(2) that make a namespace."""


@dataclass(frozen=True, slots=True)
class _Machine:
    arch: int
    clone: int
    denied: tuple[int, ...]
    most: int | None = None  # numbers from here on belong to another calling convention


# unshare setns mount umount2 pivot_root ptrace process_vm_readv process_vm_writev memfd_create shmget msgget semget
# keyctl add_key request_key bpf perf_event_open userfaultfd mq_open
_MACHINES = {
    "x86_64": _Machine(
        0xC000_003E,
        56,
        (272, 308, 165, 166, 155, 101, 310, 311, 319, 29, 68, 64, 250, 248, 249, 321, 298, 323, 240),
        0x4000_0000,
    ),
    "aarch64": _Machine(
        0xC000_00B7, 220, (97, 268, 40, 39, 41, 117, 270, 271, 279, 194, 186, 190, 219, 217, 218, 280, 241, 282, 180)
    ),
}
# The same on every machine: io_uring_setup open_tree move_mount fsopen fsconfig fsmount mount_setattr memfd_secret
_DENIED_EVERYWHERE = (425, 428, 429, 430, 431, 432, 442, 447)
_CLONE3 = 435

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF opcodes
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_EPERM, _ENOSYS = 1, 38


def _filter(machine: _Machine) -> bytes:
    """The filter as an array of `struct sock_filter` (linux/filter.h)."""
    steps: list[tuple[int, int, int, int]] = []  # opcode, jump if true, jump if false, operand

    def refuse(opcode: int, operand: int, code: int) -> None:
        steps.extend(((opcode, 0, 1, operand), (_RETURN, 0, 0, code)))

    steps += [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine.arch), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    if machine.most is not None:
        refuse(_AT_LEAST, machine.most, _ERRNO | _EPERM)
    for number in (*machine.denied, *_DENIED_EVERYWHERE):
        refuse(_EQUAL, number, _ERRNO | _EPERM)
    # Its flags lie in memory, where a filter cannot look; callers fall back on clone.
    refuse(_EQUAL, _CLONE3, _ERRNO | _ENOSYS)
    steps += [(_EQUAL, 0, 3, machine.clone), (_LOAD, 0, 0, 16)]
    refuse(_ANY_BIT, _NEW_NAMESPACES, _ERRNO | _EPERM)
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", opcode, true, false, operand) for opcode, true, false, operand in steps)


# --- The box --------------------------------------------------------------------------------------------------


def _python() -> Path:
    """The interpreter itself, not the link of a virtual environment."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()


def _mounts() -> list[str]:
    """bwrap's arguments for what Python needs to start, read-only, and nothing beside."""
    bound: list[tuple[Path, Path]] = []
    links: list[str] = []
    for name in ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"):
        path = Path(name)
        if path.is_symlink():
            links += ["--symlink", os.readlink(path), name]
        elif path.exists():
            bound.append((path, path))
    python = _python()
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    bound += [(python, python), (standard, standard)]
    shared = str(sysconfig.get_config_var("INSTSONAME") or "")
    library = Path(str(sysconfig.get_config_var("LIBDIR") or ""), shared)
    if ".so" in shared and library.exists():
        bound.append((library.resolve(), library))
    # bwrap makes missing folders for root alone, and root is given up inside.
    folders = sorted({folder for _, place in bound for folder in place.parents if folder != Path("/")})
    arguments = [word for folder in folders for word in ("--perms", "0755", "--dir", str(folder))]
    for here, place in bound:
        arguments += ["--ro-bind", str(here), str(place)]
    for extra in ("site-packages", "dist-packages"):
        if (standard / extra).is_dir():
            arguments += ["--tmpfs", str(standard / extra), "--remount-ro", str(standard / extra)]
    return [*arguments, *links]


def _command(bwrap: str, limits: Limits, source: int, rules: int, told: int, descriptors: Iterable[int]) -> list[str]:
    root = os.geteuid() == 0
    if root:
        user = random.SystemRandom().randrange(20_000, 60_000)
        apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        user = 0
        apart = ["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
        rights = ["--cap-drop", "ALL"]
    numbers = (
        source,
        user,
        int(limits.seconds) + 2,
        limits.memory,
        limits.processes + _others(),
        limits.scratch,
        limits.files,
    )
    return [
        bwrap,
        *apart,
        *rights,
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        *("--hostname", "box"),
        *_mounts(),
        *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--perms", "1777", "--size", str(limits.scratch), "--tmpfs", "/tmp"),
        *("--remount-ro", "/", "--chdir", "/"),
        *("--seccomp", str(rules), "--info-fd", str(told)),
        "--",
        *(str(_python()), "-I", "-S", "-X", "utf8", "-c", _BOOT),
        *map(str, (*numbers, *descriptors)),
    ]


def _others() -> int:
    """How many of the user's threads the process limit counts beside those of the box."""
    release = [int("".join(filter(str.isdigit, part)) or 0) for part in platform.release().split(".")[:2]]
    if os.geteuid() == 0 or release >= [5, 14]:
        return 0
    count = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                count += len(os.listdir(entry / "task"))
    return count


def available() -> str | None:
    """None when programs can be boxed here; else why not and what to do, in words. The trial run is made once."""
    if sys.platform != "linux":
        return "Code is run in bubblewrap, which exists on Linux only. Grade code tasks on a Linux machine."
    if platform.machine() not in _MACHINES:
        return f"Code is run on x86-64 and arm64 processors only, and this one is {platform.machine()}."
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "Code is run in bubblewrap, which is not installed. Install it: apt install bubblewrap"
    return _trial(bwrap)


@functools.cache
def _trial(bwrap: str) -> str | None:
    outcome = _run(bwrap, (Program("print(6 * 7)"),), Limits(seconds=20))[0]
    if outcome.stdout == b"42\n":
        return None
    words = outcome.stderr.decode(errors="replace").strip().splitlines()
    said = words[-1] if words else f"it ended with status {outcome.status} and said nothing"
    advice = (
        "Root needs the capability SYS_ADMIN for it: run as a normal user, or give the container that capability."
        if os.geteuid() == 0
        else "Most often user namespaces are forbidden: allow them (sysctl kernel.unprivileged_userns_clone=1, on "
        "Ubuntu also kernel.apparmor_restrict_unprivileged_userns=0), or run where they are."
    )
    return f"bubblewrap is installed but makes no box here ({said}). {advice}"


def run(program: Program, limits: Limits | None = None) -> Outcome:
    """Run one program to its end. Raises ConfigError when no box can be made (`available`)."""
    return run_together((program,), limits)[0]


def run_together(programs: Sequence[Program], limits: Limits | None = None) -> tuple[Outcome, ...]:
    """Run programs at the same time, each in a box of its own, until the first of them ends or a limit is reached.

    The others are stopped then (`status` None, `stopped` empty). May be called from any thread, and blocks it.
    Raises ConfigError when no box can be made (`available`).
    """
    if trouble := available():
        raise ConfigError(trouble)
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise ConfigError("bubblewrap has just been removed. Install it: apt install bubblewrap")
    return _run(bwrap, programs, limits or Limits())


@dataclass(slots=True)
class _Box:
    """One running program."""

    process: subprocess.Popen[bytes]
    first: int | None  # a descriptor of the first process inside, which is gone only after all others
    out: bytearray
    err: bytearray
    stopped: Stopped = ""
    status: int | None = None

    def kill(self) -> None:
        if self.process.returncode is None:  # else its number may be another's by now
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.first is not None:
            select.select([self.first], [], [], END_S)
            os.close(self.first)
            self.first = None


def _run(bwrap: str, programs: Sequence[Program], limits: Limits) -> tuple[Outcome, ...]:
    started = time.monotonic()
    boxes: list[_Box] = []
    handed = [descriptor for program in programs for descriptor in program.descriptors]
    try:
        for program in programs:
            boxes.append(_start(bwrap, program, limits))
            for _ in program.descriptors:
                os.close(handed.pop(0))
        _watch(boxes, limits, started + limits.seconds)
    finally:
        for descriptor in handed:
            os.close(descriptor)
        for box in boxes:
            box.kill()
            for pipe in (box.process.stdout, box.process.stderr):
                if pipe is not None:
                    pipe.close()
    took = time.monotonic() - started
    return tuple(Outcome(box.status, bytes(box.out), bytes(box.err), box.stopped, took) for box in boxes)


def _start(bwrap: str, program: Program, limits: Limits) -> _Box:
    with contextlib.ExitStack() as files:
        source = _file(files, program.source.encode("utf-8", "surrogatepass"))
        rules = _file(files, _filter(_MACHINES[platform.machine()]))
        given = _file(files, program.stdin)
        reading, writing = os.pipe()
        files.callback(os.close, reading)
        told = files.enter_context(os.fdopen(writing, "wb"))
        process = subprocess.Popen(
            _command(bwrap, limits, source.fileno(), rules.fileno(), writing, program.descriptors),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Not only inside: the first process of the box shows bwrap's own environment in /proc.
            env={},
            cwd="/",
            pass_fds=(source.fileno(), rules.fileno(), writing, *program.descriptors),
            start_new_session=True,
        )
        told.close()
        first = _first(reading)
    return _Box(process, first, bytearray(), bytearray())


def _first(reading: int) -> int | None:
    """A descriptor of the first process inside, from what bwrap tells; None when it made none."""
    words = b""
    while b"}" not in words and (chunk := os.read(reading, 4096)):
        words += chunk
    try:
        return os.pidfd_open(int(json.loads(words)["child-pid"]))
    except (OSError, ValueError, KeyError):
        return None


def _file(files: contextlib.ExitStack, content: bytes) -> IO[bytes]:
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stack
    files.enter_context(file)
    file.write(content)
    file.seek(0)
    return file


def _watch(boxes: Sequence[_Box], limits: Limits, deadline: float) -> None:
    """Collect output until the first box has ended or one is stopped."""
    with selectors.DefaultSelector() as pipes:
        for box in boxes:
            for pipe, into in ((box.process.stdout, box.out), (box.process.stderr, box.err)):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
                    pipes.register(pipe, selectors.EVENT_READ, (box, into))
        looked = time.monotonic()
        while True:
            ended = boxes[0].process.poll() is not None  # before reading, so that nothing written is left behind
            for key, _ in pipes.select(0 if ended else min(WATCH_S, max(0.0, deadline - time.monotonic()))):
                box, into = key.data
                if not _read(key.fd, into, limits.output - len(box.out) - len(box.err)):
                    pipes.unregister(key.fileobj)
                elif len(box.out) + len(box.err) > limits.output:
                    box.stopped = "output"
                    return
            if ended and not any(key.data[0] is boxes[0] and _ready(key.fd) for key in pipes.get_map().values()):
                break
            now = time.monotonic()
            if now >= deadline and not ended:
                for box in boxes:
                    box.stopped = "time" if box.process.poll() is None else ""
                break
            if now - looked >= WATCH_S:
                looked = now
                for box in boxes:
                    if _resident(box.process.pid) > limits.memory:
                        box.stopped = "memory"
                        return
            if not pipes.get_map() and not ended:
                time.sleep(min(0.005, max(0.0, deadline - now)))
    for box in boxes:
        box.status = box.process.poll()


def _read(descriptor: int, into: bytearray, room: int) -> bool:
    """Take what is there, at most one byte more than there is room for. False at the end."""
    try:
        chunk = os.read(descriptor, max(1, min(65536, room + 1)))
    except BlockingIOError:
        return True
    into += chunk
    return bool(chunk)


def _ready(descriptor: int) -> bool:
    with selectors.DefaultSelector() as one:
        one.register(descriptor, selectors.EVENT_READ)
        return bool(one.select(0))


def _resident(pid: int) -> int:
    """Bytes of resident memory of a process and all below it; what has just ended counts nothing."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page
            for task in os.listdir(f"/proc/{process}/task"):
                waiting += map(int, Path(f"/proc/{process}/task/{task}/children").read_text().split())
    return total
