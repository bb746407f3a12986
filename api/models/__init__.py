"""Pydantic models of the kinds: the one source of CRD schemas and of shape checks. Hot paths never import these."""
