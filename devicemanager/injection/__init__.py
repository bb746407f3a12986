"""What an allocation becomes inside a container (spec 06 §8, §9). `entrance` serves the device plugin."""
