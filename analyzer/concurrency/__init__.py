"""Learns from passing runs which accesses of other threads come just before an access.

Returns `AnticipatingInvariants`, for `crashcheck learn` and `crashcheck guard`.

Other rooms import `anticipating` and `observations`.
"""

from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, observe
from crashcheck.analyzer.concurrency.observations import read_log

__all__ = ["AnticipatingInvariants", "observe", "read_log"]
