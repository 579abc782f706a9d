"""PyTorch models in; importer.py is the door."""
