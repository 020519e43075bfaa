"""Fixes: edits that make a finding's failing states pass, tried on the recorded run and written as source edits.

It takes the bugs of a search and returns one `Fix` for each.

Other rooms import `c_source`, `c_targets`, `missing_calls`, `patch`, `proposals`, `propose`, `source_edit` and
`unit_compiles`.
"""
