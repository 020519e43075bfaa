"""Fixes: edits that make a finding's failing states pass, tried on the recorded run and written as source edits.

It takes the bugs of a search and hands on one `Fix` for each.
"""
