"""What does a user of Python see?"""
