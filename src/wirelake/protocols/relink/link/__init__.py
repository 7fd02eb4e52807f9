"""A Relink link: channels, acknowledgements and resume, independent of any one connection."""
