"""What a model is compared with, each by one word and in one file.

A baseline is a function ``build(name, models, opening)`` that returns a ``Subject``; ``models`` are what the user named
after the word, ``opening`` says how models are opened and what the baseline may use.
"""
