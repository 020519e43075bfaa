"""Findings: why a crash state fails, in its smallest form, with the updates to blame and their source lines.

A search hands failing states to the classifier and the causes to the register, which returns findings.

Other rooms import `call_chains`, `cause`, `classify`, `counterpart`, `describe`, `file_losses`, `identity`,
`prefix_proof`, `programs`, `provenance`, `register`, `undo_logs` and `uses`.
"""
