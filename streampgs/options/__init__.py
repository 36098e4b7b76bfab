"""Which options are there?"""
