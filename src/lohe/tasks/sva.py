"""Subject-verb agreement (Sec. 4.1): does the verb agree, past a distracting noun?

    the keys near the box are .     agrees    hard: the nearer noun has the other number
    the keys near the boxes is .    does not  easy: it has the subject's number
    the keys are .                  agrees    simple: there is none

The sentences are generated, and are the published ones: `PUBLISHED` holds the sha256 of each
published split. fish and deer have one form for both numbers, so their labels are coin flips: no
model is expected to pass 97.8 % overall.
"""

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lohe.tasks.dataset import Data, Examples, Split, Sums, broken, checksum, percent
from lohe.tasks.progress import Progress, silent


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# singular and plural are aligned; fly and flies are noun forms and verb forms
SINGULAR_NOUNS = _words("""
    key book cat dog child box plant lamp table chair map cup bag ball coin door bird fish tree
    car star ring shoe hat pen rock leaf wall flag seed duck fox frog mouse horse goat wolf bear
    deer owl ant bee fly crab boat ship tank van bus jet
""")
PLURAL_NOUNS = _words("""
    keys books cats dogs children boxes plants lamps tables chairs maps cups bags balls coins
    doors birds fish trees cars stars rings shoes hats pens rocks leaves walls flags seeds ducks
    foxes frogs mice horses goats wolves bears deer owls ants bees flies crabs boats ships tanks
    vans buses jets
""")
SINGULAR_VERBS = _words("""
    is has was sits runs falls works stands flies swims waits plays stays eats sleeps moves
    looks grows lives walks rests talks stops drops rolls spins hops digs pulls bites
""")
PLURAL_VERBS = _words("""
    are have were sit run fall work stand fly swim wait play stay eat sleep move look grow live
    walk rest talk stop drop roll spin hop dig pull bite
""")
PREPOSITIONS = _words("on under near beside above with by")

WORDS = {"the", ".", *SINGULAR_NOUNS, *PLURAL_NOUNS, *SINGULAR_VERBS, *PLURAL_VERBS, *PREPOSITIONS}
VOCABULARY = ("<PAD>", "<BOS>", "<EOS>", "<UNK>", *sorted(WORDS))
PAD, BOS, EOS = 0, 1, 2

CATEGORIES = ("simple", "easy", "hard")
LENGTH = 9  # <BOS> the SUBJECT PREPOSITION the DISTRACTOR VERB . <EOS>


@dataclass(frozen=True)
class Published:
    """A split as published: seed of its generator, number of sentences, sha256 of its lines."""

    seed: int
    sentences: int
    sha256: str


PUBLISHED = {
    "train": Published(
        0, 40_000, "7e4737780ebd790d4599f81cf47094301e29e7f9af66fc52f2ca69664ae0048a"
    ),
    "valid": Published(
        1, 4_000, "9dbf27b0a562b316775544bad07a2fc92d27fcc07ad2b1fe86946ae601dcd2b8"
    ),
    "test": Published(2, 4_000, "4b15bdf4650faa25569b4d324617defb6f7f9887c80f1daa8cb0cfa0745c1883"),
}


@dataclass(frozen=True)
class Sentence:
    """Words, whether the verb agrees with the subject, and whether the distractor does."""

    words: tuple[str, ...]
    agrees: bool
    distractor_agrees: bool | None  # None: there is no distractor

    @property
    def category(self) -> str:
        return {None: "simple", True: "easy", False: "hard"}[self.distractor_agrees]

    @property
    def verb(self) -> int:
        """Place of the verb among the words: the last but the full stop."""
        return len(self.words) - 2


@dataclass(frozen=True)
class SVA:
    """Subject-verb agreement: the published sentences; nothing to choose, nothing to download.

    >>> data = SVA().load()
    >>> {name: tuple(rows.shape) for name, rows in data.valid.inputs.items()}
    {'tokens': (4000, 9), 'key_mask': (4000, 9), 'position': (4000,)}
    """

    def load(self, root: Path | None = None, progress: Progress = silent) -> Data:
        """The three published splits; `root` is not used, since the sentences are generated."""
        sentences = {name: generate(p.seed, p.sentences) for name, p in PUBLISHED.items()}
        splits = {name: _encode(drawn) for name, drawn in sentences.items()}
        for name, drawn in sentences.items():
            _check(name, drawn)
        facts = {"sources": {name: p.sha256 for name, p in PUBLISHED.items()}}
        return Data(splits, VOCABULARY, checksum(splits), facts)

    def loss(self, outputs: Float[Tensor, " batch"], targets: Examples) -> Float[Tensor, ""]:
        """Binary cross-entropy of the logit read at the verb."""
        return F.binary_cross_entropy_with_logits(outputs, targets["label"].to(outputs.dtype))

    def tally(self, outputs: Float[Tensor, " batch"], targets: Examples) -> Sums:
        """Right answers and sentences of each category, and outputs that are no numbers; a positive
        logit says "agrees"."""
        right = (outputs > 0) == (targets["label"] == 1)
        members = {name: targets["category"] == k for k, name in enumerate(CATEGORIES)}
        correct = {f"correct_{name}": (right & of).sum() for name, of in members.items()}
        count = {f"count_{name}": of.sum() for name, of in members.items()}
        return correct | count | {"broken": broken(outputs)}

    def score(self, sums: Sums) -> dict[str, Float[Tensor, "*pack"]]:
        """Accuracy in percent: overall, simple, easy, hard."""
        correct = {name: sums[f"correct_{name}"] for name in CATEGORIES}
        count = {name: sums[f"count_{name}"] for name in CATEGORIES}
        correct["overall"], count["overall"] = (
            torch.stack(list(of.values())).sum(0) for of in (correct, count)
        )
        return {
            name: percent(correct[name], count[name], sums["broken"])
            for name in ("overall", *CATEGORIES)
        }


def generate(seed: int, sentences: int) -> list[Sentence]:
    """Independent draws; the order of the calls is the published one, and so are the sentences.

    >>> " ".join(generate(seed=1, sentences=1)[0].words)
    'the buses beside the duck sit .'
    """
    rng = random.Random(seed)
    return [_draw(rng) for _ in range(sentences)]


def json_lines(sentences: list[Sentence]) -> str:
    """The sentences as the published files hold them: what the published checksums are of."""
    return "".join(json.dumps(_record(s)) + "\n" for s in sentences)


def _draw(rng: random.Random) -> Sentence:
    has_distractor = rng.random() < 0.60
    singular = rng.random() < 0.50
    subject = rng.choice(SINGULAR_NOUNS if singular else PLURAL_NOUNS)
    agrees = rng.random() < 0.50
    verb = rng.choice(SINGULAR_VERBS if singular == agrees else PLURAL_VERBS)
    if not has_distractor:
        return Sentence(("the", subject, verb, "."), agrees, None)
    preposition = rng.choice(PREPOSITIONS)
    distractor_agrees = rng.random() < 0.50
    distractor = rng.choice(SINGULAR_NOUNS if singular == distractor_agrees else PLURAL_NOUNS)
    words = ("the", subject, preposition, "the", distractor, verb, ".")
    return Sentence(words, agrees, distractor_agrees)


def _record(sentence: Sentence) -> dict[str, object]:
    has_distractor = sentence.distractor_agrees is not None
    return {
        "tokens": sentence.words,
        "label": int(sentence.agrees),
        "subject_idx": 1,
        "verb_idx": sentence.verb,
        "distractor_idx": 4 if has_distractor else None,
        "has_distractor": has_distractor,
        "distractor_agrees": sentence.distractor_agrees,
    }


def _check(name: str, sentences: list[Sentence]) -> None:
    found = hashlib.sha256(json_lines(sentences).encode()).hexdigest()
    if found != PUBLISHED[name].sha256:
        raise ValueError(
            f"The generated {name} sentences have sha256 {found}, the published ones "
            f"{PUBLISHED[name].sha256}. They are drawn with random.Random, so this Python's "
            f"generator differs from CPython's; run on CPython 3.11 or newer."
        )


def _encode(sentences: list[Sentence]) -> Split:
    """Ids padded on the right to nine, the mask of what is no padding, and where the verb is."""
    ids = {word: k for k, word in enumerate(VOCABULARY)}
    rows = [[BOS, *(ids[word] for word in s.words), EOS] for s in sentences]
    tokens = torch.tensor([row + [PAD] * (LENGTH - len(row)) for row in rows], dtype=torch.int16)
    position = torch.tensor([s.verb + 1 for s in sentences], dtype=torch.int16)
    label = torch.tensor([s.agrees for s in sentences], dtype=torch.int16)
    category = torch.tensor([CATEGORIES.index(s.category) for s in sentences], dtype=torch.int16)
    inputs = {"tokens": tokens, "key_mask": tokens != PAD, "position": position}
    return Split(inputs, {"label": label, "category": category})
