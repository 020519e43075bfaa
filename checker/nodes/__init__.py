"""Searches the orders in which messages, time-outs, failures and crashes of several nodes may happen.

Returns `NodeSearchResult`s: findings, counts, and why each search ended.

Other rooms import `cuts`, `describe`, `disks`, `paths`, `runs`, `search`, `stacks` and `strategies`.
"""
