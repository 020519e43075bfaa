"""What a reader is shown of a run: plain strings and numbers, chosen once for every format.

`run_view.build_view` takes a `RunResult` and hands a `RunView` to the formats; `sentences` and `earlier` alone write
prose.

Other rooms import `diagrams`, `earlier`, `excerpts`, `failing_behaviour`, `numbers`, `places`, `run_view`, `sentences`,
`source_lines`, `space_time` and `text`.
"""
