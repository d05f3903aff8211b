"""Complete runs, as functions: Appendix B, with the facts of the published code where it differs.

A variant is `dataclasses.replace` of one of these.
"""

from typing import Literal

from lohe.models import Agreement, Classifier, LanguageModel, Mechanism
from lohe.models.positions import Positions
from lohe.tasks import SVA, KeywordSpotting, TinyStories, WikiText2
from lohe.train import Adam, AdamW, Run

Release = Literal["raw", "tokens"]


def keyword_spotting(attention: Mechanism, positions: Positions = "none", seed: int = 0) -> Run:
    """Ten keywords in clips of one second (Sec. 4.1); Adam with L2, as published (D4)."""
    model = Classifier(attention=attention, positions=positions)
    return Run(
        KeywordSpotting(),
        model,
        Adam(lr=1e-3),
        batch=64,
        epochs=30,
        schedule="epoch",
        select="highest accuracy",
        seed=seed,
    )


def agreement(attention: Mechanism, seed: int = 0) -> Run:
    """Subject-verb agreement on the smallest hardware (Sec. 4.1): nine oscillators."""
    model = Agreement(d_model=32, heads=1, layers=1, d_ff=64, attention=attention)
    return Run(SVA(), model, AdamW(lr=5e-4), batch=64, epochs=20, select="last", seed=seed)


def wikitext2(attention: Mechanism, seed: int = 0, release: Release = "raw") -> Run:
    """WikiText-2 with windows of 48 words; the paper used the raw release."""
    model = LanguageModel(d_model=128, heads=4, layers=2, d_ff=512, attention=attention)
    task = WikiText2(release=release)
    return Run(
        task, model, AdamW(lr=5e-4), batch=64, epochs=30, select="lowest perplexity", seed=seed
    )


def tinystories(attention: Mechanism, seed: int = 0) -> Run:
    """TinyStories in chunks of 128 words."""
    model = LanguageModel(
        d_model=128, heads=4, layers=2, d_ff=512, max_tokens=128, attention=attention
    )
    return Run(
        TinyStories(empty="skip"),
        model,
        AdamW(lr=5e-4),
        batch=256,
        epochs=5,
        select="lowest perplexity",
        seed=seed,
    )
