"""What a reader is shown of a run: plain strings and numbers, chosen once for every format."""
