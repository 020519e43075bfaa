"""Learns from passing runs which accesses of other threads come just before an access.

Returns `AnticipatingInvariants`, for `crashcheck learn`.

Other rooms import `anticipating`.
"""

from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, observe

__all__ = ["AnticipatingInvariants", "observe"]
