"""From what is declared to the database, through the services that the console uses too: one file per
section.

A step notes a service's refusal at its place and goes on, each thing in a savepoint of its own; the
transaction as a whole is kept only if nothing was refused.
"""
