"""Searches: one loop over choices, for crash states and recoveries; failures are gathered into findings.

Returns `SearchResult`s: findings, counts, and why each search ended.

Other rooms import `crash_states`, `loop`, `protocol`, `recovery`, `reopened`, `schedules` and `timeouts`.
"""
