"""Service: the planner over HTTP, as an API and as pages."""
