"""Who asks a service: no links, no plan and no native code."""
