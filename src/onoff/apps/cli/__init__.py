"""Commands of `onoff`, one module for each topic; `app` registers them."""
