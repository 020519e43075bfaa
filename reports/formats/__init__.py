"""One renderer per file: each takes the view of a run and returns text.

`registry.Rendering` picks one by its name on the command line; `json_report.load` reads a run back.

Other rooms import `failure`, `json_report`, `markdown`, `markup`, `registry`, `terminal` and `workflow_commands`.
"""
