"""``push``: an artifact as a repository of a model hub."""
