"""Update behaviours of system calls: calls grouped by their call stacks, as Pathfinder does (section 4.1).

It takes the calls of a trace and returns `Behaviours`, as the parent room does for mapped files.

Other rooms import `call_places` and `of_calls`.
"""
