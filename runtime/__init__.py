"""The recorder inside the program under test, and how a workload is run under it.

Other rooms import `build`, `copied_process`, `exploration`, `in_child`, `in_place`, `patterns`, `record`, `seal`,
`sparse`, `supervise`, `trace_format`, `validate`, `zig` and `zygote`.
"""
