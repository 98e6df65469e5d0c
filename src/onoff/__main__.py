"""`python -m onoff` is the command `onoff`."""

from onoff.apps.cli.main import main

main()
