"""Trinity's composition root: `python app.py [serve|ask|train|eval|export|import]`.

Only this file prints, and only here do the parts meet: settings, pool, coordinator, store and page. Results go to
stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 bad use, 130 cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trinity_core.config import MAX_QUESTION_CHARS, Settings, api_key_from, login_from
from trinity_core.errors import ConfigError, InputError, TrinityError

if TYPE_CHECKING:
    from storage.store import Store
    from trinity_core.agents.pool import Roster
    from trinity_core.coordinator.backbone import Backbone
    from trinity_core.coordinator.policy import Policy
    from trinity_core.tasks.task import Task
    from trinity_core.training.evaluate import Evaluation
    from trinity_core.types import AnyJobEvent

DONE, FAILED, BAD_USE, CANCELLED = 0, 1, 2, 130
COMMANDS = ("serve", "ask", "train", "eval", "export", "import")


def _whole(low: int, high: int) -> Callable[[str], int]:
    """An argument that is a whole number between `low` and `high`, both included."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {low} to {high}")
        return number

    return read


_SEED = _whole(0, 2**63 - 1)  # what fits in a trace


def parser() -> argparse.ArgumentParser:
    """The command line; every command takes --home."""
    top = argparse.ArgumentParser(prog="app.py", description=(__doc__ or "").splitlines()[0])
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, what: str, *, models: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what, description=what)
        sub.add_argument("--home", metavar="DIR", help="data folder (default: $TRINITY_HOME or the user data folder)")
        if models:
            sub.add_argument(
                "--backbone", metavar="ID", help="Hugging Face id or path (default: embedded SmolLM2-135M)"
            )
            sub.add_argument(
                "--pool", metavar="FILE", help="pool file (default: pool.toml in the home folder, or embedded)"
            )
        return sub

    serve = command("serve", "open the playground in the browser (default)")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=_whole(0, 65_535), default=7860, help="port to listen on (default: 7860)")
    serve.add_argument("--auth-env", metavar="NAME", help="environment variable with user:password, for other hosts")
    serve.add_argument(
        "--api-key-env", metavar="NAME", help="environment variable with the key that /v1 asks for, for other hosts"
    )

    ask = command("ask", "answer one question on the command line")
    ask.add_argument("question", help="the question, or - to read it from standard input")
    ask.add_argument("--json", action="store_true", help="print every event as one line of JSON")
    ask.add_argument("--method", default="coordinator", help="coordinator, random, fixed or single:AGENT")
    ask.add_argument("--turns", type=_whole(1, 1000), default=5, metavar="K", help="most turns (default: 5)")
    ask.add_argument("--seed", type=_SEED, default=0, help="seed of sampled choices (default: 0)")

    train = command("train", "train a coordinator on the built-in or your own tasks")
    train.add_argument(
        "--method", choices=("evolve", "random", "sft"), default="evolve", help="how to train (default: evolve)"
    )
    train.add_argument("--head", default="linear", metavar="KIND", help="kind of head (default: linear)")
    train.add_argument("--tasks", metavar="FILE", help="JSONL file of tasks (default: the built-in ones)")
    train.add_argument("--leave-out", metavar="FAMILY", help="train without this family of tasks")
    train.add_argument(
        "--budget", type=_whole(1, 10**9), default=20_000, metavar="N", help="evaluations (default: 20000)"
    )
    train.add_argument("--seed", type=_SEED, default=1, help="seed (default: 1)")
    train.add_argument("--resume", metavar="ID", help="go on with a training run that was interrupted or stopped")
    train.add_argument("--output", metavar="FILE", help="also write the checkpoint to FILE")
    train.add_argument("--deploy", action="store_true", help="let the coordinator use it from the next start on")

    check = command("eval", "measure a checkpoint beside single agents and random choices")
    check.add_argument("checkpoint", metavar="CHECKPOINT", help="a file, an id or its beginning, deployed or shipped")
    check.add_argument("--tasks", metavar="FILE", help="tasks as JSONL (default: the built-in ones)")
    splits = ("test", "validation", "train", "all")
    check.add_argument("--split", choices=splits, default="test", help="which of the tasks (default: test)")
    check.add_argument("--family", metavar="FAMILY", action="append", help="only tasks of this family (repeatable)")
    check.add_argument("--leave-out", metavar="FAMILY", action="append", help="no tasks of this family (repeatable)")
    check.add_argument("--turns", type=_whole(1, 1000), default=5, metavar="K", help="most turns (default: 5)")
    check.add_argument(
        "--local-tokens", type=_whole(1, 1_000_000), metavar="N", help="most tokens of a reply by a local model"
    )
    check.add_argument("--repeats", type=_whole(1, 100), default=1, metavar="R", help="answers a task (default: 1)")
    check.add_argument("--seed", type=_SEED, default=0, help="seed of sampled choices and intervals (default: 0)")
    check.add_argument("--json", action="store_true", help="print the result as one line of JSON")

    for name, what in (("export", "write all traces to FILE as JSONL"), ("import", "add the traces in FILE")):
        command(name, what, models=False).add_argument(
            "file", metavar="FILE", help="a path, or - for the standard stream"
        )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0] not in COMMANDS and arguments[0] not in ("-h", "--help")):
        arguments.insert(0, "serve")
    _mend_streams()
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    run: dict[str, Callable[[argparse.Namespace], int]] = {
        "serve": serve,
        "ask": ask,
        "train": train,
        "eval": evaluate,
        "export": export_traces,
        "import": import_traces,
    }
    try:
        return run[options.command](options)
    except KeyboardInterrupt:
        return CANCELLED
    except BrokenPipeError:  # the reader of our output is gone, for example `| head`
        _drop_output()
        return CANCELLED
    except OSError as error:  # mostly our own output: a full disk, for example
        what = error.filename or "The output"
        print(f"error: {what} cannot be used ({error.strerror or error}).", file=sys.stderr)
        _drop_output()
        return FAILED
    except (InputError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_USE
    except TrinityError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED


def _mend_streams() -> None:
    """Make the standard streams safe to use: no file of ours may take the number of a closed one, and a character
    that the terminal's encoding lacks is shown escaped."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < number:
                pass
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
        elif hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Let what is still buffered for stdout go nowhere, so that the interpreter does not fail over it at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("Standard input is closed, so there is nothing to read. Give the text as an argument.")
    return sys.stdin.buffer


def _standard_output() -> BinaryIO:
    if sys.stdout.name == os.devnull:
        raise InputError("Standard output is closed, so there is nowhere to write to. Name a file.")
    return sys.stdout.buffer


def _question(given: str) -> str:
    """The question, or what standard input holds when it is `-`."""
    if given != "-":
        return given
    enough = 4 * MAX_QUESTION_CHARS + 4  # to know that a question is too long, however much there is
    data = _standard_input().read(enough)
    try:
        return data.decode("utf-8-sig", "replace" if len(data) == enough else "strict")
    except UnicodeDecodeError:
        raise InputError("Standard input is not UTF-8 text. Convert it, for example with iconv.") from None


def _settings(options: argparse.Namespace) -> Settings:
    return Settings.load(
        home=options.home, backbone=getattr(options, "backbone", None), pool=getattr(options, "pool", None)
    )


def _open(options: argparse.Namespace) -> tuple[Settings, Store, Roster]:
    from storage.store import Store
    from trinity_core.agents.base import Wiring
    from trinity_core.agents.keys import Keys
    from trinity_core.agents.meter import Meter
    from trinity_core.agents.pool import Roster, load_pool
    from trinity_core.wire import new_id

    settings = _settings(options)
    file = load_pool(settings)
    store = Store.open(settings.db_url)
    store.recover()
    return settings, store, Roster(file, Wiring(Keys(), Meter(store, file.day), server_id=new_id()))


def _close(store: Store, pool: Roster) -> None:
    pool.wiring.meter.close()  # what was spent goes into the store first
    store.close()


def serve(options: argparse.Namespace) -> int:
    """Serve the page until interrupted. The backbone loads while the page is already up."""
    from trinity_core.session.loading import Coordinator
    from trinity_core.session.methods import Methods
    from ui.build import Services, launch

    login = login_from(options.auth_env) if options.auth_env else None
    api_key = api_key_from(options.api_key_env) if options.api_key_env else None
    settings, store, pool = _open(options)
    coordinator = Coordinator(
        settings, lambda: pool.names, lambda status: print(status.message, file=sys.stderr, flush=True)
    )
    services = Services(
        methods=Methods(pool, coordinator.policy, store),
        store=store,
        roster=pool,
        coordinator_status=lambda: coordinator.status,
        refit=coordinator.refit,
        settings=settings,
    )

    def served(url: str) -> None:
        print(f"Trinity is at {url}  (Ctrl+C stops it; data in {settings.home})", file=sys.stderr, flush=True)
        coordinator.start()

    try:
        launch(
            services,
            options.host,
            options.port,
            auth=login,
            api_key=api_key,
            server_id=pool.wiring.server_id,
            on_served=served,
        )
    finally:
        asyncio.run(pool.aclose())
        _close(store, pool)
    return DONE


def ask(options: argparse.Namespace) -> int:
    """Answer one question; the run is stored like any other."""
    from trinity_core.session.loading import Coordinator
    from trinity_core.session.loop import RunRequest
    from trinity_core.session.methods import Methods
    from trinity_core.types import Message, RunParams, Source

    question = _question(options.question)
    request = RunRequest(
        messages=(Message("user", question),),
        method=options.method,
        source=Source.CLI,
        params=RunParams(max_turns=options.turns),
        seed=options.seed,
    )
    settings, store, pool = _open(options)
    coordinator = Coordinator(settings, lambda: pool.names)
    methods = Methods(pool, coordinator.policy, store)
    try:
        methods.check(request)
        return asyncio.run(_ask(methods, request, store, pool, as_json=options.json))
    finally:
        _close(store, pool)


async def _ask(methods: Any, request: Any, store: Store, pool: Roster, *, as_json: bool) -> int:
    from trinity_core.types import (
        AnyRunEvent,
        Delta,
        Note,
        RunFinished,
        Status,
        StopReason,
        TurnFinished,
        TurnReset,
        TurnStarted,
    )
    from trinity_core.wire import line

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def show(event: AnyRunEvent) -> None:
        if as_json:
            print(line(event), flush=True)
        elif isinstance(event, TurnStarted):
            print(f"\n[turn {event.turn}] {event.agent} as {event.role}", file=sys.stderr)
        elif isinstance(event, Delta):
            print(event.text, end="", file=sys.stderr, flush=True)
        elif isinstance(event, TurnReset):
            print(f"\n  the reply starts again: {event.reason}", file=sys.stderr)
        elif isinstance(event, TurnFinished):
            print(f"\n  error: {event.error.message}" if event.error else "", file=sys.stderr)
        elif isinstance(event, Note):
            print(f"  note: {event.message}", file=sys.stderr)
        elif isinstance(event, RunFinished):
            print(f"[{event.status}: {event.stop_reason}]", file=sys.stderr)
            if event.answer is not None:
                print(event.answer)

    last: AnyRunEvent | None = None
    try:
        async with aclosing(store.record(methods.answer(request, stop))) as events:
            async for event in events:
                show(event)
                last = event
    finally:
        await pool.aclose()
    if not isinstance(last, RunFinished):
        return FAILED
    if last.error is not None:
        print(f"error: {last.error.message}", file=sys.stderr)
    elif last.stop_reason is StopReason.BUDGET and last.answer is None:
        print("error: there is no answer: the budget ended the run first.", file=sys.stderr)
        return FAILED
    codes = {Status.DONE: DONE, Status.CANCELLED: CANCELLED}
    return codes.get(last.status, FAILED)


def train(options: argparse.Namespace) -> int:
    """Train a coordinator with progress on stderr and save it as a checkpoint.

    Ctrl+C stops it; no reply that was paid for is lost, and `--resume` goes on from the last whole generation.
    """
    from trinity_core.coordinator.backbone import Backbone
    from trinity_core.session.loading import deploy
    from trinity_core.training.baselines import train_sft
    from trinity_core.types import JobFinished, Status

    settings, store, pool = _open(options)
    try:
        tasks = _tasks(options.tasks)
        planned = None
        if options.method != "sft" or options.resume:
            planned = _planned(options, settings, store, pool)
        backbone = Backbone.load(settings, lambda fraction, message: _progress(message, round(100 * fraction), 100))
        if planned is None:
            job = train_sft(settings, pool, store, backbone, tasks, seed=options.seed)
        else:
            job = planned(tasks, backbone)
        last = asyncio.run(_follow_job(store.record_job(job), pool))
    finally:
        _close(store, pool)
    if not isinstance(last, JobFinished) or "path" not in last.result:
        return FAILED
    path = Path(last.result["path"])
    print(f"{last.result['checkpoint_id']}\n{path}")
    print(last.message, file=sys.stderr)
    if options.output:
        _write_whole(Path(options.output), lambda out: out.write(path.read_bytes()))
    if options.deploy:
        deploy(settings, last.result["checkpoint_id"])
    return DONE if last.status is Status.DONE else FAILED


def _tasks(file: str | None) -> Sequence[Task]:
    """The tasks of a JSONL file, or the built-in ones."""
    from trinity_core.tasks.builtin import builtin_tasks
    from trinity_core.tasks.task import from_jsonl

    if file is None:
        return builtin_tasks()
    try:
        return from_jsonl(Path(file).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror or error}). Check the path.") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8 text. Convert it, for example with iconv.") from None


def _planned(
    options: argparse.Namespace, settings: Settings, store: Store, pool: Roster
) -> Callable[[Sequence[Task], Backbone], AsyncIterator[AnyJobEvent]]:
    """What starts the evolution, or goes on with one. Raises InputError before the backbone is loaded."""
    from storage.resume import past_of
    from trinity_core.training.plan import Plan, preflight
    from trinity_core.training.train import Control, Past, train

    past = Past()
    if options.resume:
        plan, past = past_of(store, options.resume, all_owners=True)
    else:
        plan = Plan(
            method=options.method,
            head=options.head,
            leave_out=options.leave_out,
            evaluations=options.budget,
            seed=options.seed,
        )

    def start(tasks: Sequence[Task], backbone: Backbone) -> AsyncIterator[AnyJobEvent]:
        found = preflight(plan, tasks, pool.specs, backbone.hidden_size)
        for warning in found.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        if found.problems:
            raise InputError(" ".join(found.problems))
        print(
            f"{found.train} training and {found.validation} validation tasks, n = {found.dimension:,}, "
            f"λ = {found.population}, {found.generations} generations, at most {found.calls:,} agent calls.",
            file=sys.stderr,
        )
        folder = settings.checkpoints
        return train(plan, tasks, pool, store, store, backbone, folder, Control(), job_id=options.resume, past=past)

    return start


def evaluate(options: argparse.Namespace) -> int:
    """Measure a checkpoint beside each single agent, random choices and the best agent of each question.

    Replies are stored, so a second evaluation calls nobody. A single agent may use as many tokens as all turns of a
    run together.
    """
    from trinity_core.coordinator.backbone import Backbone
    from trinity_core.coordinator.checkpoint import Checkpoint
    from trinity_core.coordinator.policy import LearnedPolicy
    from trinity_core.session.loading import find_checkpoint

    settings, store, pool = _open(options)
    try:
        checkpoint = Checkpoint.load(find_checkpoint(settings, options.checkpoint))
        checkpoint.for_pool(pool.names)  # refuse before the backbone is loaded
        tasks = [
            task
            for task in _tasks(options.tasks)
            if options.split in ("all", task.split)
            and (not options.family or task.family in options.family)
            and task.family not in (options.leave_out or ())
        ]
        backbone = Backbone.load(settings, lambda fraction, message: _progress(message, round(100 * fraction), 100))
        found = asyncio.run(_evaluate(options, LearnedPolicy(backbone, checkpoint), tasks, store, pool))
    finally:
        _close(store, pool)
    if options.json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        print("\n".join((found.table(), "", *found.sentences())))
    for note in found.notes():
        print(f"note: {note}", file=sys.stderr)
    return DONE if found.coordinator.n else FAILED


async def _evaluate(
    options: argparse.Namespace, policy: Policy, tasks: Sequence[Task], store: Store, pool: Roster
) -> Evaluation:
    from trinity_core.agents.pool import Pool
    from trinity_core.training.evaluate import evaluate as measure
    from trinity_core.training.short import Short, longer
    from trinity_core.types import RunParams

    cap, turns = options.local_tokens, options.turns
    alone = Pool(tuple(longer(spec, turns) for spec in pool.specs), pool.wiring)
    try:
        return await measure(
            policy,
            tasks,
            Short(pool, local_tokens=cap),
            params=RunParams(max_turns=turns),
            seed=options.seed,
            progress=lambda what, done, total: _progress(what, done, total),
            singles=Short(alone, local_tokens=None if cap is None else cap * turns),
            replies=store,
            repeats=options.repeats,
        )
    finally:
        await alone.aclose()
        await pool.aclose()


async def _follow_job(job: AsyncIterator[AnyJobEvent], pool: Roster) -> AnyJobEvent | None:
    """Show a job's progress on stderr and return its last event."""
    from trinity_core.types import CheckpointSaved, Generation, JobNote, Progress, Validation

    last: AnyJobEvent | None = None
    try:
        async with aclosing(job) as events:  # type: ignore[type-var]
            async for event in events:
                last = event
                if isinstance(event, Progress):
                    _progress(event.message, event.done, event.total)
                elif isinstance(event, Generation):
                    mean = sum(event.accuracies) / max(len(event.accuracies), 1)
                    told = f"  generation {event.number}: mean accuracy {100 * mean:.1f} %, σ {event.sigma or 0:.3g}"
                    print(f"{told}, {event.agent_calls} call(s), {event.failed_calls} failed", file=sys.stderr)
                elif isinstance(event, Validation):
                    turns = "" if event.mean_turns is None else f", turns {event.mean_turns:.2f}"
                    line = f"  {event.name}: {100 * event.accuracy:.1f} % of {event.n}{turns}"
                    print(line, file=sys.stderr)
                elif isinstance(event, JobNote | CheckpointSaved):
                    print(f"  {event.message}", file=sys.stderr)
    finally:
        await pool.aclose()
    return last


_told: dict[str, int] = {}
"""Tenths of each kind of progress that were printed last, where stderr is no terminal."""


def _progress(message: str, done: int, total: int | None) -> None:
    """Progress on stderr: one line that renews itself in a terminal, else a line for every tenth."""
    share = f"{done}/{total}" if total else str(done)
    if sys.stderr.isatty():
        end = "\n" if total is not None and done >= total else ""
        print(f"\r\x1b[K{message} {share}", end=end, file=sys.stderr, flush=True)
    elif total and _told.get(kind := message.partition(":")[0]) != 10 * done // total:
        _told[kind] = 10 * done // total
        print(f"{message} {share}", file=sys.stderr, flush=True)


def export_traces(options: argparse.Namespace) -> int:
    """Write every trace of the home folder as JSONL; a file appears only when it is complete."""
    from storage.exchange import export_jsonl
    from storage.store import RunQuery, Store

    store = Store.open(_settings(options).db_url)
    try:
        query = RunQuery(all_owners=True)
        if options.file == "-":
            count = export_jsonl(store, _standard_output(), query)
        else:
            count = _write_whole(Path(options.file), lambda out: export_jsonl(store, out, query))
    finally:
        store.close()
    print(f"{count} trace(s) exported.", file=sys.stderr)
    return DONE


def _write_whole(path: Path, write: Callable[[BinaryIO], int]) -> int:
    """Write a file so that it appears only when it is complete; a pipe or device is written to as it is."""
    try:
        path = path.resolve()  # a link stays a link
        if path.is_dir() or not path.name:
            raise IsADirectoryError(None, "it is a folder")
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                return write(out)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with temporary.open("wb") as out:
                count = write(out)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        said = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be written ({said}). Choose another file.") from None
    return count


def import_traces(options: argparse.Namespace) -> int:
    """Add the traces of a JSONL file; bad lines are named and the rest is kept (exit code 1 if there were any)."""
    from storage.exchange import import_jsonl
    from storage.store import Store

    store = Store.open(_settings(options).db_url)
    try:
        if options.file == "-":
            report = import_jsonl(store, _standard_input())
        else:
            try:
                with Path(options.file).open("rb") as lines:
                    report = import_jsonl(store, lines)
            except OSError as error:
                said = error.strerror or error
                raise InputError(
                    f"{options.file or 'An empty name'} cannot be read ({said}). Check the path."
                ) from None
    finally:
        store.close()
    for bad in report.errors:
        print(f"line {bad.number}: {bad.message}", file=sys.stderr)
    if more := report.failed - len(report.errors):
        print(f"... and {more} more bad lines.", file=sys.stderr)
    print(f"{report.imported} imported, {report.skipped} already there, {report.failed} bad.", file=sys.stderr)
    return FAILED if report.failed else DONE


if __name__ == "__main__":
    sys.exit(main())
