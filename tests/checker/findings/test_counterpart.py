"""The counterpart of a finding's crash state in another recording."""

from __future__ import annotations

from dataclasses import replace

from crashcheck.checker.findings.counterpart import Signed, counterpart
from crashcheck.checker.token import Token, parse
from support.checked_worlds import VALID, VALUE, MakeWorld, only, put_flag_first


def test_a_state_has_a_counterpart_where_its_update_is_placed_elsewhere_now(world: MakeWorld) -> None:
    """Of a large program not all debug information is read: when all updates are asked for, some are placed further
    out than they were when a finding was placed."""
    finding = only(world(put_flag_first, "64>0", name="searched", sites={1: VALUE, 2: VALID}).explore().findings)
    outside = replace(VALUE, line=99, function="caller")
    here = world(put_flag_first, name="here", sites={1: outside, 2: VALID})
    token = parse(finding.replay)
    assert isinstance(token, Token)
    state = token.for_trace(here.trace)
    assert state in counterpart(finding, state, Signed(here.subject), Signed(here.subject)).states
