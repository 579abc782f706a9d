"""What each level computes, in NumPy: the oracle of the tests and the engine of calibration."""
