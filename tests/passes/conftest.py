"""What tests of passes share. Being here puts this folder on the path: `from before_after import
...`.
"""
