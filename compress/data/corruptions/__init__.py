"""Corruptions of images and texts at five severities, one per file.

A corruption is a function ``corrupt(value, severity, generator)`` that returns a new value of the same kind. Severities
are 1 (mild) to 5. It draws all its random numbers from ``generator``, the same ones at every severity, so a curve
against severity shows the severity and not the luck of the draw. ``compress.data.corruptions.registry`` lists them.
"""
