"""`python -m onoff` is the command `onoff`."""

from onoff.cli import main

main()
