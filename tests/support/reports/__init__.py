"""Reports in the tests: runs to render, golden files, schemas, suggested changes, reports without times."""
