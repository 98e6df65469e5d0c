"""The optimal law: the linear program of the paper, solved and proved."""
