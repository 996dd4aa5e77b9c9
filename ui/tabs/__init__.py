"""The tabs of the page, one module each. A tab's `build` adds its components and events to the open Blocks."""
