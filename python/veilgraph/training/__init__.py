"""Training in secret: compiling a plan that trains, rehearsing it in float32, and running it."""
