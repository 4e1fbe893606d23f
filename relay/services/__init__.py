"""What operators do with upstreams, models and routes: the control plane. The data plane reads none of this;
triggers tell it what changed (`relay.models.Change`).
"""
