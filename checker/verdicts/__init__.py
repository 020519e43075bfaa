"""Where a search gets verdicts from: runs of the check here, kept ones, copies of a process that waits, images alone.

A search asks a `VerdictSource`, at whose bottom an `Executor` runs the check on states and an oracle judges how it
ended; `VerdictCache` remembers those that explain a failure. `prepare`, `blind_check` and `other_files` run the check
before the first state or after the last.

Other rooms import `blind_check`, `copies`, `executor`, `image_judge`, `kept_verdicts`, `other_files`, `prepare`,
`verdict_cache` and `verdict_source`.
"""
