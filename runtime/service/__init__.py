"""Plans served: links that live as long as the process, and clients who come and go."""
