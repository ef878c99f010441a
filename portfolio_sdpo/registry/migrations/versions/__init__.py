"""One file per revision: `r0002_what.py` holds revision 0002 and follows 0001."""
