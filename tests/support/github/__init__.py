"""A fake GitHub for the tests of publishing, its API description, and tools that judge what is written for GitHub."""
