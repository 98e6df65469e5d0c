"""The audit: what can the server learn? It shares no code with what it checks, except the chain and arithmetic.

Nothing here imports a scheme builder, the planner, the session or the client: the referee never imports the player.
Plans come in as objects and are exhibits: nothing they say is believed. Their encoders are asked for, and checked.

A new audit is a folder here, whose `__init__` is its front door, and a command in `onoff.apps.cli.audit`.
"""
