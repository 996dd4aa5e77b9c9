"""The page as a whole: one Blocks with its tabs, and the server that shows it.

What is configured here on purpose: nothing leaves the machine (no analytics, no share link, no fonts), every
event is private, Gradio's own run history in the browser is off, and a server that others can reach needs a login
for the page and a key for the endpoint under /v1.
"""

from __future__ import annotations

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # must be set before gradio is imported
os.environ.pop("GRADIO_ALLOWED_PATHS", None)  # an empty allowed_paths would fall back to it

import json
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.middleware import Middleware

import assets
from trinity_core.config import Settings
from trinity_core.errors import ConfigError
from trinity_core.types import AgentSpec
from ui.api import Access, Api
from ui.jobs import RunManager
from ui.security import Guard, is_loopback
from ui.tabs import pool as pool_tab
from ui.tabs import run as run_tab
from ui.tabs import traces as traces_tab

if TYPE_CHECKING:
    from storage.store import Store
    from trinity_core.agents.pool import Roster
    from trinity_core.session.loading import CoordinatorStatus
    from trinity_core.session.methods import Methods

TITLE = "Trinity"
_LOG_OUT = '<a class="tr-button" href="logout" data-testid="log-out">Log out</a>'


@dataclass(frozen=True, slots=True)
class Services:
    """What the page needs from the rest of the program.

    `coordinator_status` is asked about once a second while the coordinator loads, and must return at once. `refit`
    is called after the pool was exchanged.
    """

    methods: Methods
    store: Store
    roster: Roster
    coordinator_status: Callable[[], CoordinatorStatus]
    settings: Settings
    refit: Callable[[], None] = lambda: None

    @property
    def pool(self) -> tuple[AgentSpec, ...]:
        """The members of now, in order."""
        return self.roster.specs


def build(services: Services, runs: RunManager, *, login: bool = False) -> gr.Blocks:
    """The page; `runs` answers its questions.

    With `login` each user sees only what is theirs; without, a browser may ask to see all traces.
    """
    gr.set_static_paths([assets.path("favicon.svg"), _plotly_js()])
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=(3600, 86400)) as page:
        gr.HTML(
            f'<header class="tr-head"><img src="{_url(assets.path("favicon.svg"))}" alt="" width="30" height="30">'
            f"<h1>{TITLE}</h1><p>Watch a small model decide, turn by turn, who answers and in which role.</p>"
            f"{_LOG_OUT if login else ''}"
            '<button type="button" class="tr-help-button" aria-label="Keyboard shortcuts">?</button></header>',
            elem_id="trinity-head",
        )
        with gr.Tabs(elem_id="tabs", selected="run") as tabs:
            with gr.Tab("Run", id="run", elem_id="tab-run") as tab:
                run_tab.build(page, tab, services, runs)
            with gr.Tab("Traces", id="traces", elem_id="tab-traces", render_children=True) as tab:
                traces_tab.build(page, tabs, tab, services, login=login)
            with gr.Tab("Pool", id="pool", elem_id="tab-pool", render_children=True) as tab:
                pool_tab.build(page, tabs, tab, services)
    return page


def _plotly_js() -> Path:
    """The plotly.min.js inside the installed plotly package, found without importing it."""
    spec = find_spec("plotly")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    script = folder / "package_data" / "plotly.min.js"
    if not script.is_file():
        raise ConfigError(
            "plotly.min.js is missing from the installed plotly package. Reinstall it: pip install plotly"
        )
    return script


def _url(path: Path) -> str:
    """Relative to the page, which may be served below a path prefix."""
    return f"gradio_api/file={path.as_posix()}"


def _head() -> str:
    """Style sheet and script, inline, so that they are there before any component is mounted.

    Not `launch(css=...)`: Gradio rewrites the selectors inside media queries so that some match nothing.
    """
    style = assets.path("trinity.css").read_text(encoding="utf-8")
    script = assets.path("trinity.js").read_text(encoding="utf-8")
    plotly = json.dumps(_url(_plotly_js()))
    return f"<style>{style}</style><script>window.trinityPlotly = {plotly};\n{script}</script>"


def _theme() -> gr.themes.Base:
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
    return gr.themes.Base(
        primary_hue="indigo",
        secondary_hue="indigo",
        neutral_hue="slate",
        radius_size="lg",
        font=fonts,
        font_mono=mono,
    )


def _check_port(host: str, port: int) -> None:
    """Raise ConfigError when nothing can be bound to `host`:`port`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            raise ConfigError(
                f"Port {port} on {host} cannot be used ({error.strerror or error}). Stop the program that uses it, "
                f"or choose another one, for example --port {port + 1 if port < 65535 else 7860}."
            ) from None


def launch(
    services: Services,
    host: str = "127.0.0.1",
    port: int = 7860,
    *,
    auth: tuple[str, str] | None = None,
    api_key: str | None = None,
    server_id: str = "",
    names: tuple[str, ...] = (),
    on_served: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
    grace_s: float = 30.0,
    keepalive_s: float = 10.0,
) -> None:
    """Serve the page and the endpoint at `host`:`port` until interrupted, terminated, or `stop` is set; then end all
    runs.

    `auth` is a user name and password, `api_key` the endpoint's key; both are needed off loopback. With a login and
    without a key the endpoint is closed. `server_id` names this process, so that a member of the pool that calls its
    endpoint is noticed. `names` are further host names that lead here. `on_served` is called with the URL once the
    page is up. A run that nobody watches ends after `grace_s` seconds; a stream of the endpoint says something every
    `keepalive_s` seconds. Raises ConfigError when the port is taken, or a login or key is missing.
    """
    _check_access(host, auth, api_key)
    _check_port(host, port)
    stop = stop or threading.Event()
    signals: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if signals:  # asked twice: at once
            raise KeyboardInterrupt
        signals.append(number)  # not stop.set(): it takes the lock that an interrupted stop.wait() holds

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
    runs = RunManager(services.methods, services.store.record, grace_s=grace_s)
    try:
        page = build(services, runs, login=auth is not None)
        page.queue(max_size=64, default_concurrency_limit=8)
        access = Access(
            key=api_key,
            owner=f"user:{auth[0]}" if auth else "api",
            server_id=server_id,
            closed=auth is not None and api_key is None,
        )
        api = Api(services.methods, runs, services.store, access, keepalive_s=keepalive_s)
        page.launch(**_options(services, host, port, auth, names, api))
        try:
            if on_served is not None:
                on_served(f"http://{f'[{host}]' if ':' in host.strip('[]') else host}:{port}/")
            while not signals and not stop.wait(0.5):  # a signal that another thread took does not end the wait
                pass
        finally:
            runs.shutdown()  # first, so that no open stream holds the server up
            page.close(verbose=False)
    finally:
        runs.shutdown()


def _check_access(host: str, auth: tuple[str, str] | None, api_key: str | None) -> None:
    """Raise ConfigError when other machines could use this one without showing who they are."""
    if is_loopback(host):
        return
    for given, what, how in (
        (auth, "a login is needed", "user:password with --auth-env"),
        (api_key, "an API key is needed", "a key of your choice for the endpoint with --api-key-env"),
    ):
        if not given:
            raise ConfigError(
                f"{host} can be reached by other machines, so {what}. Name an environment variable that holds {how}, "
                "or leave out --host to serve this machine only."
            )


def _options(
    services: Services, host: str, port: int, auth: tuple[str, str] | None, names: tuple[str, ...], api: Api
) -> dict[str, Any]:
    return {
        "server_name": host,
        "server_port": port,
        "auth": auth,
        "prevent_thread_lock": True,
        "quiet": True,
        "show_error": False,
        "share": False,
        "inbrowser": False,
        "strict_cors": True,
        "enable_monitoring": False,
        "mcp_server": False,
        "ssr_mode": False,
        "pwa": False,
        "run_history": False,
        "footer_links": ["settings"],
        "allowed_paths": [],
        "blocked_paths": [str(services.settings.home)],
        "max_file_size": "5mb",
        "favicon_path": assets.path("favicon.svg"),
        "theme": _theme(),
        "head": _head(),
        "app_kwargs": {
            "middleware": [Middleware(Guard, host=host, port=port, names=names)],
            "routes": api.routes(),
        },
    }
