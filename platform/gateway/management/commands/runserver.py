"""`manage.py runserver`: Daphne's, for work on the code.

Daphne is no installed app: Django would load it, and Twisted with it, into every process, which costs a start a fifth
of its time and each process 15 MiB.
"""

from daphne.management.commands.runserver import Command

__all__ = ["Command"]
