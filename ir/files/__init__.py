"""Files: what kind they are of, how they are put in place whole, and tables in them."""
