"""The web page: background runs, rendering without a server, the tabs, and what guards them.

`jobs`, `view`, `render` and `plots` do not import gradio and are tested as plain Python.
"""
