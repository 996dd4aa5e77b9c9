"""`make bench`: every figure that docs/RESULTS.md quotes, measured again in one run.

    python -m tests.bench [quality] [cache] [store] [start] [kill] [wire]   # all parts without arguments

Ratios against a named baseline within one run count; absolute seconds depend on the machine. Nothing here is a test.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / ".cache" / "models"


def main(parts: list[str]) -> int:
    """Run the named parts, or all of them."""
    known: dict[str, Callable[[], Iterator[str]]] = {
        "quality": quality,
        "cache": cache,
        "store": stored,
        "start": start,
        "kill": kill,
        "wire": wire,
    }
    if unknown := [part for part in parts if part not in known]:
        print(f"unknown part {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    print(f"{date.today()}  {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for part in parts or known:
        began = time.monotonic()
        for line in known[part]():
            print(line, flush=True)
        print(f"  ({part}: {time.monotonic() - began:.0f} s)\n", flush=True)
    return 0


@contextmanager
def fresh_home() -> Iterator[Path]:
    """An empty home folder whose weights are the machine's converted ones."""
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trinity-bench-") as folder:
        (Path(folder) / "models").symlink_to(MODELS, target_is_directory=True)
        yield Path(folder)


def quality() -> Iterator[str]:
    """Held-out built-in tasks, argmax: coordinator, single agents, random policy, best agent per question."""
    from storage.store import Store
    from trinity_core.agents.pool import Roster, load_pool
    from trinity_core.agents.recall import Recall
    from trinity_core.config import Settings
    from trinity_core.coordinator.backbone import Backbone
    from trinity_core.session.loading import learned_policy
    from trinity_core.tasks.builtin import builtin_tasks
    from trinity_core.training.baselines import compare
    from trinity_core.training.rollout import score

    yield "## Held-out built-in tasks (argmax; accuracy, 95 % Wilson interval)"
    with fresh_home() as home:
        settings = Settings.load(home=home)
        store, pool = Store.open(settings.db_url), Roster(load_pool(settings))
        backbone = Backbone.load(settings)
        policy = learned_policy(backbone, settings, pool.names)
        held = [task for task in builtin_tasks() if task.split == "test"]
        recall = Recall(pool, store)

        async def measured() -> list[str]:
            played = await compare(policy, held, recall)
            rows = [score(name, outcomes) for name, outcomes in played.items()]
            lines = [str(row) for row in rows]
            for family in dict.fromkeys(task.family for task in held):
                own = [outcome for outcome in played["coordinator"] if outcome.task.family == family]
                lines.append(str(score(f"  coordinator: {family}", own)))
            singles = [row for row in rows if row.name.startswith("single")]
            best, oracle = max(row.accuracy for row in singles), rows[-1].accuracy
            lines.append(f"coordinator - best single agent: {100 * (rows[0].accuracy - best):+.1f} points (aim: 20)")
            lines.append(f"coordinator / best per question: {100 * rows[0].accuracy / oracle:.0f} % (aim: 90)")
            await pool.aclose()
            return lines

        yield from asyncio.run(measured())
        store.close()


def cache() -> Iterator[str]:
    """A decision from the run's KV cache against the full pass."""
    from tests.bench_coordinator import bench

    yield "## Cached decision against the full pass"
    yield from bench()


def stored() -> Iterator[str]:
    """10,000 stored traces."""
    from tests.bench_storage import bench

    yield "## 10,000 stored traces"
    yield from bench()


def start() -> Iterator[str]:
    """Process start to page and to model; submit to the first decision drawn in Chromium."""
    from playwright.sync_api import sync_playwright

    yield "## Start and first decision"
    with fresh_home() as home, served(home) as (url, began, said):
        yield f"process start to page served: {said['page'] - began:.1f} s"
        yield f"process start to model ready: {wait_ready(said) - began:.1f} s"
        with sync_playwright() as playwright:
            arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
            page = browser.new_page()
            page.goto(url)
            seconds = []
            for number in range(5):
                page.locator("#run-query textarea").fill(f"What is {17 + number} times 23?")
                clicked = time.monotonic()
                page.locator("#run-start").click()
                page.locator('[data-testid="turn-1"]').last.wait_for(timeout=60_000)
                page.wait_for_function(
                    "document.querySelectorAll('#run-agent-logits .bar, #run-agent-logits .point').length > 0"
                )
                seconds.append(time.monotonic() - clicked)
                page.locator("#run-lane [data-status]").last.wait_for()
                page.wait_for_function("!document.querySelector('#run-start').disabled", timeout=120_000)
                page.get_by_role("button", name="New conversation").click()
                page.wait_for_function("document.querySelectorAll('[data-testid=\"turn-1\"]').length === 0")
            browser.close()
        listed = ", ".join(f"{value:.2f}" for value in seconds)
        yield f"submit to first decision drawn: {listed} s (median {sorted(seconds)[2]:.2f}; aim: 0.7)"


def wire() -> Iterator[str]:
    """Adapters, runs and the endpoint against real servers; its sections can be run one by one."""
    from tests.bench_wire import bench

    yield "## Against real servers"
    yield from bench()


@contextmanager
def served(home: Path) -> Iterator[tuple[str, float, dict[str, float]]]:
    """The real server on a free port: its URL, when it was started, and when it said what on stderr."""
    import threading

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    began = time.monotonic()
    command = [sys.executable, str(ROOT / "app.py"), "serve", "--port", str(port), "--home", str(home)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    said: dict[str, float] = {}

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if "coordinator" in line:
                said["ready"] = time.monotonic()

    threading.Thread(target=listen, daemon=True).start()
    try:
        while "page" not in said:
            try:
                urllib.request.urlopen(url, timeout=5).read()
                said["page"] = time.monotonic()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        yield url, began, said
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_ready(said: dict[str, float]) -> float:
    """When the server said that the coordinator is ready."""
    deadline = time.monotonic() + 300
    while "ready" not in said:
        if time.monotonic() > deadline:
            raise TimeoutError("the coordinator did not get ready")
        time.sleep(0.05)
    return said["ready"]


def kill() -> Iterator[str]:
    """`kill -9` during a run, twenty times at random moments."""
    yield "## kill -9 during a run, 20 times"
    rng, kept, started, interrupted = random.Random(7), 0, 0, 0
    with fresh_home() as home:
        command = [sys.executable, str(ROOT / "app.py"), "ask", "--json", "--method", "fixed", "--home", str(home)]
        command.append("How many letters are in 'strawberry'? Multiply that number by 7.")
        for _ in range(20):
            finished, run_id = kill_once(command, rng.uniform(0.0, 4.0))
            if run_id is None:
                continue
            started += 1
            with sqlite3.connect(home / "trinity.db") as db:
                sql = "select count(*) from turns where run_id = ? and finish is not null and seconds is not null"
                stored_turns = db.execute(sql, (run_id,)).fetchone()[0]
            if stored_turns < finished:
                yield f"LOST: {finished} turns were finished, {stored_turns} are stored"
            kept += stored_turns >= finished
            again = [*command[:3], "--method", "single:symbolic", "--home", str(home), "What is 1 + 1?"]
            subprocess.run(again, capture_output=True, cwd=ROOT, check=True, timeout=120)
            with sqlite3.connect(home / "trinity.db") as db:
                status = db.execute("select status from runs where id = ?", (run_id,)).fetchone()[0]
            interrupted += status == "interrupted"
    yield f"{started} runs killed after they began; every finished turn kept: {kept}/{started}; "
    yield f"read as interrupted after the next start: {interrupted}/{started}"


def kill_once(command: list[str], after: float) -> tuple[int, str | None]:
    """Start, kill `after` seconds from the first event on: (finished turns seen, run id or None)."""
    import threading

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    assert process.stdout is not None
    finished, run_id, timer = 0, None, None
    for line in process.stdout:
        if timer is None:
            timer = threading.Timer(after, process.kill)
            timer.start()
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # cut by the kill
            break
        run_id = event["run_id"]
        finished += event["event"] == "turn_finished"
        if event["event"] == "run_finished":
            run_id = None  # it was over before the kill
    process.wait()
    if timer is not None:
        timer.cancel()
    return finished, run_id


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
