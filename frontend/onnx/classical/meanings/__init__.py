"""What converters write out in many nodes, as the few that it means."""
