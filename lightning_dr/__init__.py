"""Post-train language models against an evaluator that is trained beside them (DynamicRubric, arXiv 2607.20083).

The files directly in this package are the algorithm: torch and the standard library. ``modules``, ``datamodules`` and ``callbacks`` are its
Lightning shell, ``toy`` is a world in which the truth is known, and ``lightning-dr fit`` runs it all.
"""

__version__ = "0.1.0"
