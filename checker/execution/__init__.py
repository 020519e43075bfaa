"""Running the check on crash images: worker processes, each run bounded in time, memory and output.

Returns how each run ended (`Run`); what that means for its crash state is for an oracle to judge.

Other rooms import `check_command`, `check_script`, `in_turn`, `process`, `python_check`, `tasks`, `time_limit`,
`worker`, `worker_pool`, `worker_process` and `worker_start`.
"""
