"""Large inputs and outputs, and the blobs of applications."""
