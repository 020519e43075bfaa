"""What a recorded run did to its files, in the one order in which it became visible."""
