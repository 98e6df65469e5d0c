"""Make a law realisable in every context: flows, repair, screening."""
