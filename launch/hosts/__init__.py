"""Which machines take part in a job?"""
