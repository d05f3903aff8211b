"""Appendix B's models, as compositions of one pre-norm block.

A configuration is a small frozen value that builds a module for the data at hand:

    model = Agreement(attention=Oscillator()).build(SVA().load(), torch.Generator().manual_seed(0))
    model(**batch.inputs)

Every model runs under torch.func (functional_call, vmap, grad): a pack of seeds is one call.
"""

from lohe.models.agreement import Agreement, AgreementNet
from lohe.models.classifier import Classifier, ClassifierNet
from lohe.models.controls import (
    ExponentialReadout,
    FrozenAnchors,
    LearnedSharpness,
    NoDynamics,
)
from lohe.models.counts import ParameterCounts, parameter_counts
from lohe.models.dropout import Dropout, set_generator
from lohe.models.embedding import Embedding
from lohe.models.language_model import LanguageModel, LanguageNet
from lohe.models.mechanisms import (
    Amplified,
    Mechanism,
    Oscillator,
    PositionOffset,
    RankMatchedSoftmax,
    Softmax,
)
from lohe.models.rivals import (
    SoftmaxAlibi,
    SoftmaxCosine,
    SoftmaxPositions,
    SoftmaxRope,
    SoftmaxTemperature,
)
from lohe.models.stretch import stretched
from lohe.models.transformer import Block, Encoder, attention_layers, attention_weights

__all__ = [
    "Agreement",
    "AgreementNet",
    "Amplified",
    "Block",
    "Classifier",
    "ClassifierNet",
    "Dropout",
    "Embedding",
    "Encoder",
    "ExponentialReadout",
    "FrozenAnchors",
    "LanguageModel",
    "LanguageNet",
    "LearnedSharpness",
    "Mechanism",
    "NoDynamics",
    "Oscillator",
    "ParameterCounts",
    "PositionOffset",
    "RankMatchedSoftmax",
    "Softmax",
    "SoftmaxAlibi",
    "SoftmaxCosine",
    "SoftmaxPositions",
    "SoftmaxRope",
    "SoftmaxTemperature",
    "attention_layers",
    "attention_weights",
    "parameter_counts",
    "set_generator",
    "stretched",
]
