"""The revisions of the table of `features`, in the folder `versions`."""
