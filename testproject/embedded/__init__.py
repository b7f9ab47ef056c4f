"""An embedded PostgreSQL 18 for machines that have none: nothing to install, nothing to clean up.

`backend` is the Django database backend that starts it with the first connection; `server` starts
it, finds it and shares it; `keeper` stops it after the last user; `programs` runs PostgreSQL's own
programs. `python -m testproject.embedded COMMAND...` runs any command with it.
"""
