"""What do photos of fire, of smoke and of neither look like, and how are they read?"""
