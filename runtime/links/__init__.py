"""Rounds of messages between parties."""
