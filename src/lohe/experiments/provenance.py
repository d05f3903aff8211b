"""Which models were measured: those of the recorded runs, or others that were trained again."""

from collections.abc import Iterable

from lohe.experiments.evidence import Evidence
from lohe.experiments.measures import Measure
from lohe.experiments.report import TASKS
from lohe.experiments.store.records import Record
from lohe.train import Run


def notes(measures: Iterable[Measure], evidence: Evidence) -> list[str]:
    """One line where measured models are other training runs than the records of their seeds.

    A measure notes every metric of the training that its model came from. The recorded run has the
    same metrics to the last digit; one that agrees in some of them is another run all the same.
    """
    models: dict[str, dict[tuple[Run, str], float | None]] = {}
    metrics: dict[str, str] = {}
    for measure in measures:
        if not (pair := _pair(measure, evidence)):
            continue
        run, taken, recorded = pair
        model = taken.notes["model"]
        task = TASKS.get(type(run.task).__name__, type(run.task).__name__)
        metrics[task] = next(name for name in model if name in recorded.result)
        apart = abs(model[metrics[task]] - recorded.result[metrics[task]])
        # text: NaN is the same NaN
        other = str(sorted(model.items())) != str(sorted(recorded.result.items()))
        models.setdefault(task, {})[run, str(model)] = apart if other else None
    said = []
    for task, found in models.items():
        if apart := [x for x in found.values() if x is not None]:
            far = f"up to {max(apart):.3g} apart" if max(apart) else "the same"
            said.append(f"{len(apart)} of {len(found)} ({task}, {metrics[task]} {far})")
    if not said:
        return []
    return [
        "Measured models that are other training runs than the recorded ones of the same seeds: "
        f"{', '.join(said)}. A seed shares its dropout with the pack that it is trained in."
    ]


def _pair(measure: Measure, evidence: Evidence) -> tuple[Run, Record, Record] | None:
    """Whose model it is, the measure's record, and the run's; None where one is missing."""
    taken, run = evidence.measured(measure), measure.run
    recorded = evidence.recorded(run) if run else None
    known = taken and recorded and taken.notes.get("model", {}).keys() & recorded.result.keys()
    return (run, taken, recorded) if run and taken and recorded and known else None
