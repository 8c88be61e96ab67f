"""Records: jobs, trainings and events as the database holds them."""
