"""Builds the report of one learner: every candidate with its figures and why it was chosen or not."""

from gpsched.adaptive.hints import choose
from gpsched.adaptive.hints.chooser import Chooser
from gpsched.adaptive.hints.evaluation import Evaluation
from gpsched.adaptive.hints.model import CandidateReport, HintsReport
from gpsched.adaptive.hints.observations import Matcher


SHOWN = 32  # candidates in a report, the best first


def build_report(pid: int, chooser: Chooser, lost: int) -> HintsReport:
    """Return the report; candidates seen too rarely to be evaluated are left out."""
    rated = chooser.rate(chooser.costs)
    chosen = {trigger.matcher for trigger in chooser.choice.triggers}
    rated.sort(key=lambda item: (item[0] not in chosen, -item[1].precision * item[1].recall, item[0].conditions))
    return HintsReport(
        pid=pid,
        state=chooser.choice.state,
        why=chooser.choice.why,
        choice=chooser.choice,
        candidates=[_candidate(*item, item[0] in chosen, chooser) for item in rated[:SHOWN]],
        outcome=chooser.reservations.outcome(),
        recent=chooser.reservations.recent(),
        burst_us=chooser.burst_quantiles(),
        interval_us=round(chooser.interval_us, 1),
        drifts=chooser.drifts,
        lost_events=lost,
        learned_after=chooser.learned_after,
    )


def _candidate(matcher: Matcher, found: Evaluation, is_chosen: bool, chooser: Chooser) -> CandidateReport:
    objection = choose.objection(matcher, found, chooser.costs)
    if is_chosen:
        verdict = choose.explain(matcher, found, chooser.costs)
    else:
        verdict = objection or "adds too little to what is chosen"
    return CandidateReport(
        trigger=str(matcher),
        kind=matcher.kind.name.lower(),
        thread=matcher.tid,
        descriptor=matcher.descriptor,
        sizes=matcher.sizes,
        idle=matcher.idle,
        occurrences=found.samples,
        precision=round(found.precision, 4),
        recall=round(found.recall, 4),
        lead_us=found.leads_us,
        offset_us=round(found.offset_us, 1),
        hidden_us=round(found.hidden_us, 1),
        waste_share=round(found.waste_share, 5),
        chosen=is_chosen,
        verdict=verdict,
    )
