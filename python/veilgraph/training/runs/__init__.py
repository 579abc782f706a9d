"""What a run of training is asked, takes and tells, beside its steps."""
