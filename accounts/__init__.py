"""Organizations, their members and keys: who may call, and within which limits.

The lowest room of the house: it imports no other of ours. `scope` is the only door to an organization's rows,
`keys` makes and fingerprints keys (no Django in it, the relay uses it too), `services` changes things.
"""
