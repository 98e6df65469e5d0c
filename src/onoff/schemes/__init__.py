"""Ways to draw a query. Each module builds the law of one scheme; none of them talks to a network."""
