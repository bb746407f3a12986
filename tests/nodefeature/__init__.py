"""Tests of the label algebra."""
