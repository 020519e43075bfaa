"""The parts of the pipeline, in order: get a recording, set up its search, summarise the result, keep it.

They take the configuration and return values; `crashcheck.pipeline` calls them, and so do subcommands that need a part.
"""
