"""Convolutions by residues: images as residues, so that every tap reads runs of memory."""
