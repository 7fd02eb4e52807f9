"""Serializers of YAMP bodies, and the limits on parsing them."""
