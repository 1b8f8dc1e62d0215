"""One metric per file.

A metric of the evaluated set is a function ``metric(columns, weights=None)``; one of an out-of-distribution set is
``metric(ranking, weights=None)``. Without weights it returns a scalar float64 tensor. With bootstrap weights ``(R, N)``
(how often each sample was drawn, see ``compress.evaluation.intervals``) it returns the R resampled values ``(R,)``, so
the estimate and its interval come from one formula. ``compress.evaluation.metrics.registry`` lists them all.
"""
