"""A page with the Train tab, over a scripted trainer and a real store: `python -m tests.browser.train_server`.

`--step` is the time of one generation in seconds, `--stored` how many finished trainings there are at first.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr
from starlette.middleware import Middleware

from storage.store import Store
from tests.test_training_manager import EACH, Control, ScriptedTrainer
from trinity_core.config import Settings
from trinity_core.training.plan import Plan
from ui import build as page_of
from ui.jobs import RunManager
from ui.security import Guard
from ui.tabs import train as train_tab
from ui.training import TrainingManager


@dataclass(frozen=True)
class Services:
    settings: Settings
    refit: Callable[[], None]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--home", required=True)
    options.add_argument("--step", type=float, default=0.4)
    options.add_argument("--stored", type=int, default=0)
    given = options.parse_args()
    settings = Settings.load(home=given.home)
    store = Store.open(settings.db_url)
    store.recover()
    runs = RunManager(None, None)  # type: ignore[arg-type]  # no question is asked here
    trainer = ScriptedTrainer(store, step_s=0.0)
    training = TrainingManager(trainer, store, runs.spawn, Control)
    for seed in range(1, given.stored + 1):
        asyncio.run(training.start(Plan(evaluations=(8 + 6 * seed) * EACH, seed=seed), None))
        while training.status.busy:
            threading.Event().wait(0.02)
    settings.checkpoints.mkdir(exist_ok=True)
    for one in store.checkpoints():
        (settings.checkpoints / f"{one.id}.safetensors").touch()
    trainer.step_s = given.step
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    gr.set_static_paths([page_of._plotly_js()])
    with gr.Blocks(title="Trinity", analytics_enabled=False, fill_width=True) as page:
        gr.HTML('<header class="tr-head"><h1>Trinity</h1></header>', elem_id="trinity-head")
        with gr.Tabs(elem_id="tabs", selected="about") as tabs:
            with gr.Tab("About", id="about", elem_id="tab-about"):
                gr.HTML('<div class="tr-hold"><p>Another tab.</p></div>', elem_id="about")
            with gr.Tab("Train", id="train", elem_id="tab-train", render_children=True) as tab:
                train_tab.build(page, tabs, tab, Services(settings, lambda: None), training)
    page.queue(max_size=64, default_concurrency_limit=8)
    page.launch(
        server_name="127.0.0.1", server_port=given.port, prevent_thread_lock=True, quiet=True, strict_cors=True,
        ssr_mode=False, footer_links=["settings"], theme=page_of._theme(), head=page_of._head(), run_history=False,
        app_kwargs={"middleware": [Middleware(Guard, host="127.0.0.1", port=given.port, names=())]},
    )  # fmt: skip
    try:
        while not stop.wait(3600):
            pass
    finally:
        training.shutdown(5)
        runs.shutdown()
        page.close(verbose=False)
        store.close()


if __name__ == "__main__":
    main()
