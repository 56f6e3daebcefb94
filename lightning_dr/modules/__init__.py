"""The roles, the base they share, and the module that trains them together."""

from .backbone import Backbone, BackboneConfig
from .coevolution import CoEvolutionModule
from .generator import GeneratorModule
from .policy import PolicyModule
from .sampling import SamplingConfig
from .schedule import Phase
from .verifier import LLMVerifier

__all__ = [
    "Backbone",
    "BackboneConfig",
    "CoEvolutionModule",
    "GeneratorModule",
    "LLMVerifier",
    "Phase",
    "PolicyModule",
    "SamplingConfig",
]
