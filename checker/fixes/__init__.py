"""Fixes: edits that make a finding's failing states pass, tried on the recorded run and written as source edits.

It takes the bugs of a search and returns one `Fix` for each.

Other rooms import `candidates`, `missing_calls`, `proposals` and `propose`.
"""
