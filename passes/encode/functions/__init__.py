"""Real functions of one number, and softmax, in fixed point."""
