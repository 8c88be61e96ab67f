"""What do several nodes find out together, in one MPI job of the planner's own?"""
