"""What people read of a plan and a run."""
