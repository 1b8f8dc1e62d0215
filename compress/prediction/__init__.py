"""Answers for single inputs: the class, how probable it is, how uncertain that is, and whether to abstain."""
