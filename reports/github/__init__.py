"""What a run writes on a pull request: annotations, one comment, a check run, a review."""
