"""The paper's model: a chain, its posterior, and the bounds of Theorem 1."""
