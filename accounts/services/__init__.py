"""What may be done with organizations, members and keys. Each service is called inside a scope
(`accounts.scope`) that sees the organization, says who acts, and raises one of `accounts.errors` when it
refuses.
"""
