"""Commands of `onoff`, one module for each topic; `onoff.cli` registers them."""
