"""The revisions of the tables of `documents`, in the folder `versions`."""
