"""Implicit timers: where values that come from clocks are compared, as in `if (now > t + timeout)` (MODIST 3.4).

`reader.read_flows` returns a unit's flows of numbers, kept in its facts; `linked.activate` follows clocks through those
of all units of a program, and switches the hooks of what they reach on.

Other rooms import `flows`, `linked` and `reader`.
"""
