"""The audit: what can the server learn? It takes a chain, plans and transcripts, and shares no code with their makers.

Nothing here imports a scheme builder, the planner, the session or the client: the referee never imports the player.
Plans come in as objects and are treated as exhibits: their encoders are asked for, and checked.
"""
