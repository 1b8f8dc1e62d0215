"""The one multi-head attention of the project and the grouped linear layer under it."""
