"""Grouped bars: what is drawn where, and what is not there."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Annotation

from lohe.viz import bars
from lohe.viz.style import drawing

MEANS = np.array([[90.0, 95.0], [80.0, np.nan]])
STDS = np.array([[3.0, 8.0], [np.nan, np.nan]])


@pytest.fixture
def ax():
    with drawing():
        figure, ax = plt.subplots()
        yield ax
        plt.close(figure)


def draw(ax, ceiling: float = np.inf) -> None:
    how = {"labels": ("a", "b"), "colors": ("r", "b"), "ceiling": ceiling}
    bars.grouped(ax, ("one", "two"), MEANS, STDS, **how)


def whiskers(ax, n: int) -> np.ndarray:
    """Ends of the whiskers of series n, (bar, (low, high))."""
    _, _, (lines,) = [c for c in ax.containers if hasattr(c, "has_yerr")][n]
    return np.array([segment[:, 1] for segment in lines.get_segments()])


def caps(ax, n: int) -> list[np.ndarray]:
    """Heights of the lower and of the upper caps of series n."""
    _, lines, _ = [c for c in ax.containers if hasattr(c, "has_yerr")][n]
    return [line.get_ydata() for line in lines]


def test_a_bar_for_every_number_and_its_mean_at_its_foot(ax):
    draw(ax)
    ax.set_ylim(60, 103)
    bars.numbers(ax)
    assert [bar.get_height() for bar in ax.patches] == [90, 95, 80]
    texts = {text.get_text(): text.get_position()[0] for text in ax.texts}
    assert list(texts) == ["no records", "90.0", "95.0", "80.0"]
    # where no whisker is, ours or the paper's
    assert {text.xy[1] for text in ax.texts if isinstance(text, Annotation)} == {60}
    assert texts["no records"] == pytest.approx(1.21)
    middles = [bar.get_x() + bar.get_width() / 2 for bar in ax.patches]
    np.testing.assert_allclose(middles, [-0.21, 0.79, 0.21])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["one", "two"]


def test_whiskers_are_a_deviation_and_end_at_the_ceiling(ax):
    draw(ax, ceiling=100)
    np.testing.assert_allclose(whiskers(ax, 0), [[87, 93], [87, 100]])
    np.testing.assert_equal(caps(ax, 0), [[87, 87], [93, np.nan]])  # the cut one has no end
    np.testing.assert_allclose(whiskers(ax, 1), [[80, 80]])  # one value has no spread


def test_published_values_stand_on_their_bars(ax):
    draw(ax)
    bars.published(ax, MEANS, STDS)
    for n, expected in enumerate(([90, 95], [80])):
        line = [c for c in ax.containers if hasattr(c, "has_yerr")][2 + n].lines[0]
        x, y = line.get_data()
        assert list(y) == expected
        inside = bars.places(n, 2, 2)[: len(expected)]
        assert (np.abs(x - inside) < bars.WIDTH / 4).all()


def test_one_legend_with_each_label_once(ax):
    draw(ax)
    bars.published(ax, MEANS, STDS)
    bars.legend(ax.figure, ncols=2)
    (legend,) = ax.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "a",
        "b",
        f"the paper, {bars.WHISKERS}",
        f"ours, {bars.WHISKERS}",
    ]


def test_of_nothing_it_is_said_that_there_is_nothing(ax):
    how = {"labels": ("a", "b"), "colors": ("r", "b")}
    bars.grouped(ax, ("one", "two"), MEANS * np.nan, STDS, **how)
    bars.published(ax, MEANS * np.nan, STDS)
    assert not ax.patches
    assert [text.get_text() for text in ax.texts] == ["no records"] * 4
