"""Being here puts this folder on the path of every test: `from models import light_model`."""
