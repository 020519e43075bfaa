"""A change under review: `diff` reads it, `code` finds what it touches in a program, `base` searches its base."""
