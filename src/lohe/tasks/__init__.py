"""Data and metric of the paper's four tasks: each is a frozen value with `load` and `score`.

data = WikiText2(release="tokens").load()
batch = data.train.take(torch.randperm(len(data.train))[:64])
loss = task.loss(model(**batch.inputs), batch.targets)
"""

from lohe.tasks.articles import WikiText2Articles
from lohe.tasks.dataset import Data, Split, Sums, Task, load_aloud, total
from lohe.tasks.features import KeywordFeatures
from lohe.tasks.generated import GeneratedClips, GeneratedText
from lohe.tasks.kws import KeywordSpotting
from lohe.tasks.logmel import LogMel
from lohe.tasks.root import data_root
from lohe.tasks.sva import SVA
from lohe.tasks.tinystories import TinyStories
from lohe.tasks.wikitext2 import WikiText2

__all__ = [
    "SVA",
    "Data",
    "GeneratedClips",
    "GeneratedText",
    "KeywordFeatures",
    "KeywordSpotting",
    "LogMel",
    "Split",
    "Sums",
    "Task",
    "TinyStories",
    "WikiText2",
    "WikiText2Articles",
    "data_root",
    "load_aloud",
    "total",
]
