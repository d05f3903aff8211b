"""Halves of articles, and a test split that is only there when it is asked for."""

import pytest
import torch

from lohe.tasks import WikiText2, WikiText2Articles, total
from lohe.tasks.articles import article_starts
from lohe.tasks.language import EOS, PAD

PROTOCOLS = pytest.mark.parametrize("protocol", ["strict", "published"])
LENGTHS = {"valid": (20, 31, 7, 40), "test": (25, 9, 33)}  # words of each article under its title


def lines(split: str) -> list[str]:
    """Articles of words that say where they stand: valid2x7 is the eighth of the third."""
    found = ["\n"]
    for a, length in enumerate(LENGTHS.get(split, (200,) * 3)):
        words = " ".join(f"{split}{a}x{n}" for n in range(length))
        found += [f" = {split}{a} = \n", " \n", f" {words} \n", " \n", f" = = {a} = = \n", " \n"]
    return found


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        text = "".join(lines(split) + (lines("valid") + lines("test")) * (split == "train"))
        (folder / f"wiki.{split}.tokens").write_text(text, encoding="utf-8")
    return tmp_path


def task(**how) -> WikiText2Articles:
    return WikiText2Articles(tokens=6, release="tokens", **how)


def read(data, split: str) -> list[str]:
    """The words that are scored, in order."""
    words = data.splits[split].targets["next"].flatten().tolist()
    return [data.names[w] for w in words if w not in (PAD, EOS)]


@PROTOCOLS
def test_half_of_the_articles_choose_and_the_others_do_not(root, protocol):
    data = task(protocol=protocol).load(root)
    stream = {s: [w for line in lines(s) for w in line.lower().split()] for s in LENGTHS}
    border = stream["valid"].index("valid2") - 1
    halves = stream["valid"][:border], stream["valid"][border:]
    for name, words in zip(("valid", "later"), halves, strict=True):
        scored = words[1:] if protocol == "strict" else words[: len(words) // 6 * 6]
        assert read(data, name) == scored


def test_no_test_words_unless_asked_for(root):
    choosing, confirming = task().load(root), task(test=True).load(root)
    assert set(choosing.splits) == {"train", "valid", "later"}
    assert set(confirming.splits) == {"train", "valid", "later", "test"}
    for name in choosing.splits:
        assert torch.equal(
            choosing.splits[name].targets["next"], confirming.splits[name].targets["next"]
        )


@PROTOCOLS
def test_an_articles_sums_are_those_of_its_words_alone(root, protocol, rng):
    """And test is cut as it always was: each target belongs to one article."""
    by_article = task(protocol=protocol, test=True)
    data = by_article.load(root)
    test = data.splits["test"].take(slice(None))
    plain = WikiText2(tokens=6, release="tokens", protocol=protocol).load(root)
    assert torch.equal(test.targets["next"], plain.splits["test"].take(slice(None)).targets["next"])
    logits = torch.randn(*test.targets["next"].shape, len(data.names), generator=rng)
    halves = [by_article.tally(logits[part], test.take(part).targets) for part in _two(len(logits))]
    found = by_article.score(total(halves))
    nll = -logits.log_softmax(-1).gather(-1, test.targets["next"][..., None])[..., 0]
    for word, member in zip(
        test.targets["next"].flatten(), test.targets["article"].flatten(0, 1), strict=True
    ):
        if (name := data.names[word]).startswith("test"):  # its own words say whose they are
            assert member.nonzero().tolist() == [[int(name[4])]]
    if protocol == "published":  # the inserted EOS goes with the word before it
        assert torch.equal(test.targets["article"][:, -1], test.targets["article"][:, -2])
    whole = found["article_nll"].sum(), found["article_targets"].sum()
    assert torch.allclose(whole[0] / whole[1], found["nats"], rtol=1e-5)
    for a in range(3):
        mine = test.targets["article"][..., a] & (test.targets["next"] != PAD)
        assert found["article_targets"][a] == mine.sum()
        assert torch.allclose(found["article_nll"][a], nll[mine].sum().double(), rtol=1e-5)


def test_articles_under_vmap_are_those_of_each_model(root, rng):
    by_article = task(test=True)
    data = by_article.load(root)
    test = data.splits["test"].take(slice(None))
    logits = torch.randn(2, *test.targets["next"].shape, len(data.names), generator=rng)
    together = torch.func.vmap(by_article.tally, in_dims=(0, None))(logits, test.targets)
    for n in range(2):
        alone = by_article.tally(logits[n], test.targets)
        assert torch.allclose(together["article_nll"][n], alone["article_nll"])
        assert torch.equal(together["article_targets"][n], alone["article_targets"])


def test_a_formula_is_no_title():
    rows = ["\n", " = A = \n", "\n", " where k \n", " = 1 and C = \n", " = 2 \n", "\n"]
    rows += [" = = B = = \n", "\n", " = C = \n", "\n", "x"]
    assert article_starts(rows) == [0, 17]


def test_one_article_cannot_be_halved():
    with pytest.raises(ValueError, match=r"found 1\. Import or fetch"):
        article_starts(["\n", " = A = \n", "\n", "x y z"])


def test_wikitext2_has_sixty_articles_to_validate_and_to_test_on(shared_root):
    data = WikiText2Articles(release="tokens", test=True).load(shared_root)
    assert data.facts["articles"] == {"valid": 60, "test": 60}
    scored = {name: int((s.targets["next"] != PAD).sum()) for name, s in data.splits.items()}
    assert scored["valid"] + scored["later"] == 217_611 - 2
    assert scored["test"] == 245_074 - 1
    whole = WikiText2(release="tokens", protocol="strict").load(shared_root)
    assert torch.equal(data.splits["test"].targets["next"], whole.splits["test"].targets["next"])


def _two(n: int) -> list[slice]:
    return [slice(0, n // 2), slice(n // 2, n)]
