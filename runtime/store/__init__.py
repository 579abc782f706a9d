"""What a party keeps on its disk."""
