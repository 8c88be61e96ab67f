"""Commands of stored plans: their lists, and what is shown and exported of one."""
