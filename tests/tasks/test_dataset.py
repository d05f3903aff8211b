"""One shape for every task, so that one loop can train packs of seeds on any of them."""

import doctest
import importlib
import json
import pkgutil
from dataclasses import asdict

import pytest
import torch

import lohe.tasks
from lohe.tasks import SVA, KeywordSpotting, Split, Task, TinyStories, WikiText2, total
from lohe.tasks.dataset import checksum, one_of

SEEDS, BATCH, TOKENS, WORDS = 3, 8, 5, 11
ROUNDING = 1e-6  # a float32 sum of 40 to 120 terms in two orders

TASKS = [SVA(), WikiText2(), TinyStories(), KeywordSpotting()]


def outputs_and_targets(task, rng):
    """A pack of random outputs of the shape that the task's model has, and targets to match."""
    following = torch.randint(0, WORDS, (SEEDS, BATCH, TOKENS), generator=rng)  # 0 is padding
    label = torch.randint(0, 2, (SEEDS, BATCH), generator=rng)
    category = torch.randint(0, 3, (SEEDS, BATCH), generator=rng)
    if isinstance(task, SVA):
        return torch.randn(SEEDS, BATCH, generator=rng), {"label": label, "category": category}
    if isinstance(task, KeywordSpotting):
        return torch.randn(SEEDS, BATCH, 10, generator=rng), {"label": label}
    return torch.randn(SEEDS, BATCH, TOKENS, WORDS, generator=rng), {"next": following}


def one_seed(targets, seed):
    return {name: rows[seed] for name, rows in targets.items()}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
class TestEveryTask:
    def test_is_a_task(self, task):
        assert isinstance(task, Task)

    def test_is_a_value_that_a_record_can_hold(self, task):
        assert hash(task) == hash(type(task)(**vars(task)))
        assert json.loads(json.dumps(asdict(task))) is not None

    def test_a_pack_of_seeds_is_scored_as_each_seed_alone(self, task, rng):
        outputs, targets = outputs_and_targets(task, rng)
        packed = torch.func.vmap(task.tally)(outputs, targets)
        score = task.score(total([packed]))
        for seed in range(SEEDS):
            alone = task.score(total([task.tally(outputs[seed], one_seed(targets, seed))]))
            for name, value in alone.items():
                torch.testing.assert_close(score[name][seed], value, rtol=ROUNDING, atol=0)

    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_an_output_that_is_no_number_leaves_no_score(self, task, value, rng):
        """Nor does it in the other batches: a model that diverged is not right by chance."""
        outputs, targets = outputs_and_targets(task, rng)
        broken = outputs.clone()
        broken[1, 2] = value
        tally = torch.func.vmap(task.tally)
        score = task.score(total([tally(broken, targets), tally(outputs, targets)]))
        for name, found in score.items():
            assert found[1].isnan(), name
            assert found[[0, 2]].isfinite().all(), name

    def test_a_pack_of_seeds_has_the_gradients_of_each_seed_alone(self, task, rng):
        outputs, targets = outputs_and_targets(task, rng)
        packed = torch.func.vmap(torch.func.grad(task.loss))(outputs, targets)
        for seed in range(SEEDS):
            alone = torch.func.grad(task.loss)(outputs[seed], one_seed(targets, seed))
            torch.testing.assert_close(packed[seed], alone)

    def test_batches_add_up(self, task, rng):
        outputs, targets = outputs_and_targets(task, rng)
        by_seed = [task.tally(outputs[s], one_seed(targets, s)) for s in range(SEEDS)]
        merged = {name: rows.flatten(0, 1) for name, rows in targets.items()}
        at_once = task.score(total([task.tally(outputs.flatten(0, 1), merged)]))
        for name, value in task.score(total(by_seed)).items():
            torch.testing.assert_close(value, at_once[name], rtol=ROUNDING, atol=0)


def test_the_loss_of_a_language_model_is_the_log_of_its_perplexity(rng):
    outputs, targets = outputs_and_targets(WikiText2(), rng)
    batch = one_seed(targets, 0)
    nats = WikiText2().score(WikiText2().tally(outputs[0], batch))["nats"]
    assert abs(WikiText2().loss(outputs[0], batch).item() - nats.item()) < 1e-6


def test_ids_are_kept_narrow_and_given_wide(agreement):
    split = agreement.valid
    batch = split.take(slice(0, 4))
    assert split.inputs["tokens"].dtype == torch.int16
    assert batch.inputs["tokens"].dtype == torch.int64
    assert batch.inputs["key_mask"].dtype == torch.bool
    assert len(batch) == 4


def test_each_seed_of_a_pack_takes_its_own_batch(agreement, rng):
    split = agreement.valid
    index = torch.stack([torch.randperm(len(split), generator=rng)[:6] for _ in range(SEEDS)])
    batch = split.take(index)
    assert batch.inputs["tokens"].shape == (SEEDS, 6, 9)
    torch.testing.assert_close(batch.targets["label"][1], split.take(index[1]).targets["label"])


def test_one_changed_token_changes_the_checksum(agreement):
    valid = agreement.valid
    tokens = valid.inputs["tokens"].clone()
    tokens[7, 3] += 1
    changed = Split(valid.inputs | {"tokens": tokens}, valid.targets)
    assert checksum(agreement.splits) == agreement.checksum
    assert checksum(agreement.splits | {"valid": changed}) != agreement.checksum


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WikiText2(tokens=0), r"WikiText2 needs tokens >= 1, got 0"),
        (lambda: TinyStories(tokens=4), r"TinyStories needs tokens >= 5, got 4"),
        (lambda: KeywordSpotting(()), r"needs words that differ, got \(\)"),
        (lambda: KeywordSpotting(("go", "go")), r"needs words that differ, got \('go', 'go'\)"),
    ],
)
def test_options_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_names_are_checked():
    # as a task does; in tests the annotation would speak first
    message = r"WikiText2 has no release 'html'\. Choose one of 'raw', 'tokens'\."
    with pytest.raises(ValueError, match=message):
        one_of("WikiText2", "release", "html", ("raw", "tokens"))


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(lohe.tasks.__path__)])
def test_examples_in_docstrings(name):
    module = importlib.import_module(f"lohe.tasks.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("task", [WikiText2, TinyStories])
@pytest.mark.parametrize("vocab", [0, 2**15 - 3])
def test_a_vocabulary_has_words_and_ids_of_sixteen_bits(task, vocab):
    assert task(vocab=2**15 - 4)
    with pytest.raises(ValueError, match=rf"vocab .* got {vocab}"):
        task(vocab=vocab)
