"""The parts of the pipeline: get a recording, set up its search and the checks, summarise the result, keep it.

They take the configuration and return values; `crashcheck.pipeline` calls them, and so do subcommands that need a part.
"""
