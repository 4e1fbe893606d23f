"""Prices, usage records and the ledger.

`pricing` is pure integer arithmetic, shared by the hold and the bill. `ingest` is the only writer of usage
records: it inserts what the relay journalled and posts the charge in the same transaction.
"""
