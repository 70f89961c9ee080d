"""The pytest plugin. Imports no torch unless a test asks for a watch."""
