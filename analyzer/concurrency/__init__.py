"""Learns what usually happens just before an access of a thread, or before an update in persist order.

Returns `AnticipatingInvariants`, learned from passing runs, and `Deviance`: how unusual each update behaviour is among
those of its run.

Other rooms import `anticipating` and `predecessors`.
"""

from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, observe
from crashcheck.analyzer.concurrency.predecessors import Deviance, measure_deviance

__all__ = ["AnticipatingInvariants", "Deviance", "measure_deviance", "observe"]
