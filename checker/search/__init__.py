"""Searches: one loop over choices, for crash states, recoveries and mutants; failures are gathered into findings.

Returns `SearchResult`s: findings, counts, and why each search ended.

Other rooms import `crash_states`, `loop`, `protocol`, `recovery`, `reopened`, `schedules` and `timeouts`.
"""
