"""Small programs with one device mistake each, and correct ones. A line that may be the cause ends in `# cause`."""
