"""Tests; folders mirror the packages."""
