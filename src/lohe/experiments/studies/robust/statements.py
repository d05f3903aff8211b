"""What Appendix C says of the curves in words: resolution and smoothness."""

import math
from itertools import pairwise

from lohe.experiments.evidence import Evidence
from lohe.experiments.studies.robust.devices import Changes, shown, unit
from lohe.experiments.studies.robust.physics import HORIZONS, SCALES
from lohe.experiments.studies.robust.subjects import KWS, SVA, Subject, carrier
from lohe.experiments.verdicts import Claim, Line, Verdict, bound

SHORTEST, SETTLED = HORIZONS[0], 5.0


def of_horizons(evidence: Evidence, reading: str) -> list[Line]:
    """The two tasks that are counted in examples: how soon they are at their resolution."""
    return [_shortest(evidence, reading), _descends(evidence, reading)]


def of_perturbations(evidence: Evidence, reading: str) -> list[Line]:
    """Noise on the state."""
    tasks = (KWS, carrier(evidence.setting, reading))
    return [_smooth(evidence, subject, reading) for subject in tasks]


def _shortest(evidence: Evidence, reading: str) -> Line:
    change = Changes(evidence, KWS, reading).at("settling", SHORTEST)
    holds, found = None, "not a number" if change else "no records"
    if change and math.isfinite(change.value):
        one_clip = bound("settle-kws-shortest")
        holds = abs(change.value) <= one_clip
        found = f"{change.value:+.2f} pp, one clip is {one_clip} pp"
    return _line(
        f"KWS, at the resolution of the metric at T = {SHORTEST:g}",
        "yes, -0.13 pp",
        f"{shown(change, KWS, error=False)} pp" if change else "",
        Claim("settle-kws-shortest", holds, found),
        reading,
    )


def _descends(evidence: Evidence, reading: str) -> Line:
    changes = Changes(evidence, SVA, reading)
    upto = [h for h in HORIZONS if h <= SETTLED]
    found = [change for h in upto if (change := changes.at("settling", h))]
    said, holds = ", ".join(f"{c.value:+.3f}" for c in found), None
    if len(found) == len(upto) and all(math.isfinite(c.value) for c in found):
        nearer = all(abs(b.value) < abs(a.value) for a, b in pairwise(found))
        most = bound("settle-sva-resolution")
        holds = nearer and abs(found[-1].value) <= most
        said += f" pp, {'' if nearer else 'not '}descending; allowed ±{most} at T = 5"
    return _line(
        "SVA, descends to the resolution of the metric by T = 5",
        "-7.21, -2.39, -0.45, -0.00 pp",
        ", ".join(shown(c, SVA, error=False) for c in found) + " pp" if found else "",
        Claim("settle-sva-resolution", holds, said or "no records"),
        reading,
    )


def _smooth(evidence: Evidence, subject: Subject, reading: str) -> Line:
    """Worse and worse as noise grows, up to what chance does."""
    changes = Changes(evidence, subject, reading)
    found = [change for s in SCALES if (change := changes.at("state", s))]
    worse = [c.value if subject.language else -c.value for c in found]
    holds, said = None, "not a number at every scale" if found else "no records"
    if len(worse) == len(SCALES) and all(map(math.isfinite, worse)):
        back = max(a - b for a, b in pairwise((0.0, *worse)))
        most = bound("robust-state-noise", "nats" if subject.language else "pp")
        holds = back <= most
        said = f"falls back by {max(back, 0.0):.4f} at most, allowed {most:g}"
    return _line(
        f"{subject.name}, state noise from {SCALES[0]:g} to {SCALES[-1]:g}",
        "smooth",
        ", ".join(shown(c, subject, error=False) for c in found) + f" {unit(subject)}"
        if found
        else "",
        Claim("robust-state-noise", holds, said),
        reading,
    )


def _line(what: str, paper: str, ours: str, claim: Claim, reading: str) -> Line:
    value: Verdict = "not reported" if ours else "no records"
    return Line(what, paper, ours, value, claim, reading)
