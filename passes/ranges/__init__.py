"""Where values lie: seen on samples, or by value-range analysis."""
